"""Classify with NVIDIA's tritonclient, over the Open Inference Protocol.

pip install 'tritonclient[http]'
python examples/triton_client.py photo.jpg --budget-ms 20
"""

import argparse
import json
import sys
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def served_model(address: str) -> str:
    """The name of the bundle that is served."""
    with urlopen(f"http://{address}/version") as response:
        name: str = json.load(response)["model"]["name"]
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", help="the bundle's name; whichever is served by default")
    parser.add_argument("--budget-ms", type=float)
    args = parser.parse_args()

    files = np.array([path.read_bytes() for path in args.images], dtype=np.object_)
    image = triton.InferInput("image", [len(files)], "BYTES")
    image.set_data_from_numpy(files)
    outputs = [
        triton.InferRequestedOutput("scores", class_count=5),
        triton.InferRequestedOutput("resolution"),
    ]
    parameters = {} if args.budget_ms is None else {"budget_ms": args.budget_ms}
    model = args.model or served_model(args.url.partition("://")[2])
    with triton.InferenceServerClient(args.url.partition("://")[2]) as client:
        try:
            result = client.infer(model, [image], outputs=outputs, parameters=parameters)
        except InferenceServerException as error:
            print(error, file=sys.stderr)
            return 1

    rows = zip(args.images, result.as_numpy("resolution"), result.as_numpy("scores"), strict=True)
    for path, resolution, best in rows:
        print(f"{path} at {resolution} px")
        for line in best:
            score, _, label = line.decode().split(":", 2)
            print(f"{float(score):7.1%}  {label}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
