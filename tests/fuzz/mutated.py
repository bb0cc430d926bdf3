"""`python -m tests.fuzz.mutated 20000`: so many damaged images against a running service.

Each must be classified or refused with a sentence, and the service must go on as if nothing was.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from benchmarks.driving.wire import Client, post
from benchmarks.servers.our_service import OurService
from tests.fuzz.mutations import mutated, originals

ALLOWED = {"200", "400", "413", "415"}
_CONNECTIONS = 4
_TIMEOUT_S = 120.0


def send(port: int, images: dict[int, bytes]) -> tuple[Counter[str], float, int]:
    """Send images one after the other; the statuses, the longest that one took, and which it was.

    An image that is not answered, or refused without a sentence, counts under its number.
    """
    seen: Counter[str] = Counter()
    slowest, which = 0.0, -1
    for number, image in images.items():
        begun = time.perf_counter()
        try:
            with Client(port, timeout_s=_TIMEOUT_S) as client:
                answer = client.send(post("/classify?resolution=64", image))
        except (OSError, ValueError) as error:
            seen[f"{number}: {error!r}"] += 1
            continue
        if (took := time.perf_counter() - begun) > slowest:
            slowest, which = took, number
        said = answer.status == 200 or answer.json()["detail"]
        seen[str(answer.status) if said else f"{number}: {answer.status} without a word"] += 1
    return seen, slowest, which


def main() -> int:
    """Send them, and say what came of it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    images = dict(enumerate(mutated(count, seed=23)))
    server = OurService(options=["--formats", "JPEG,PNG,WEBP,GIF,BMP,TIFF,PPM,AVIF"])
    with server:
        server.await_ready()
        before = server.memory_mb()
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            parts = [
                {n: image for n, image in images.items() if n % _CONNECTIONS == part}
                for part in range(_CONNECTIONS)
            ]
            found = list(pool.map(lambda part: send(server.port, part), parts))
        healthy = all(send(server.port, {0: image})[0]["200"] for image in originals())
        after = server.memory_mb()
        is_over = server.is_over
        log = server.log()
    seen: Counter[str] = Counter()
    for part, _, _ in found:
        seen += part
    slowest, which = max((slowest, which) for _, slowest, which in found)
    told = {
        "images": count,
        "statuses": dict(sorted(seen.items())),
        "slowest_s": round(slowest, 3),
        "slowest_image": which,
        "memory_mb": [round(before), round(after)],
        "all originals classified afterwards": healthy,
    }
    sys.stdout.write(json.dumps(told) + "\n" + log + "\n")
    return 0 if healthy and not is_over and set(seen) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
