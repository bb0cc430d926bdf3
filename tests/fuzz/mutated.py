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

ALLOWED = {200, 400, 413, 415}
_CONNECTIONS = 4


def send(port: int, images: list[bytes]) -> tuple[Counter[int], float]:
    """Send images one after the other; the statuses, and the longest that one took."""
    seen: Counter[int] = Counter()
    slowest = 0.0
    for image in images:
        begun = time.perf_counter()
        with Client(port, timeout_s=30.0) as client:
            answer = client.send(post("/classify?resolution=64", image))
        slowest = max(slowest, time.perf_counter() - begun)
        seen[answer.status] += 1
        if answer.status not in (200, 429):
            assert answer.json()["detail"]
    return seen, slowest


def main() -> int:
    """Send them, and say what came of it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    images = list(mutated(count, seed=23))
    server = OurService(options=["--formats", "JPEG,PNG,WEBP,GIF,BMP,TIFF,PPM,AVIF"])
    with server:
        server.await_answer("/readyz", 120.0)
        before = server.memory_mb()
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            parts = [images[n::_CONNECTIONS] for n in range(_CONNECTIONS)]
            found = list(pool.map(lambda part: send(server.port, part), parts))
        healthy = all(send(server.port, [image])[0][200] for image in originals())
        after = server.memory_mb()
        is_over = server.is_over
    seen: Counter[int] = Counter()
    for part, _ in found:
        seen += part
    told = {
        "images": count,
        "statuses": dict(sorted(seen.items())),
        "slowest_s": round(max(slowest for _, slowest in found), 3),
        "memory_mb": [round(before), round(after)],
        "all originals classified afterwards": healthy,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if healthy and not is_over and set(seen) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
