"""LitServe: decode, predict and encode in worker processes; requests are batched where it pays."""

from typing import Any

import litserve
import network
import numpy as np


class ClassifyApi(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        self.classifier = network.Classifier()

    def decode_request(self, request) -> np.ndarray:  # an annotation would change what it parses
        return self.classifier.preprocess(request["image"].file.read())

    def predict(self, pixels: np.ndarray) -> Any:
        return self.classifier.run(pixels[None])[0]

    def encode_response(self, scores: np.ndarray) -> dict[str, Any]:
        return {"predictions": self.classifier.best(scores)}


if __name__ == "__main__":
    server = litserve.LitServer(
        ClassifyApi(api_path="/classify"),
        accelerator="cpu",
        workers_per_device=network.WORKERS,
        fast_queue=True,  # the documented choice for payloads of some size
        timeout=False,
    )
    server.run(
        host="127.0.0.1", port=network.PORT, num_api_servers=1, generate_client_file=False,
        log_level="warning", access_log=False,
    )  # fmt: skip
