"""What the cache of answers costs a picture that is new.

    python -m benchmarks.answer_cache [--blocks 24]

Two services, one with the cache and one without, get the same pictures one at a time, in turns: a
block to one, the same block to the other, then the other way round. No picture is sent twice to a
service. The figure is the median over the blocks of the ratio of their median latencies.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client
from benchmarks.servers.our_service import OurService, classify

BLOCK = 40


def pictures() -> Iterator[bytes]:
    """Crops of a photo, all different."""
    with Image.open(io.BytesIO(photo(900))) as image:
        while True:
            for left in range(0, 400, 7):
                for top in range(0, 300, 7):
                    buffer = io.BytesIO()
                    crop = image.crop((left, top, left + 500, top + 375))
                    crop.save(buffer, "JPEG", quality=90)
                    yield buffer.getvalue()


def median_ms(service: OurService, bodies: list[bytes]) -> float:
    """One client, one picture after the other."""
    with Client(service.port) as client:
        times = []
        for body in bodies:
            took_ms, answer = client.time(classify(body, budget_ms=1000))
            told: dict[str, Any] = answer.json()
            assert told["reason"] != "The same picture was answered before."
            times.append(took_ms)
    return median(times)


def main() -> int:
    """Print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=24)
    args = parser.parse_args()
    quiet = ("--agreement-fraction", "0")
    without = OurService(options=quiet)
    cached = OurService(options=(*quiet, "--answer-cache-megabytes", "64"))
    drawn, ratios, plain = pictures(), [], []
    with without, cached:
        without.await_ready()
        cached.await_ready()
        for block in range(args.blocks):
            bodies = [next(drawn) for _ in range(BLOCK)]
            found = {}
            for service in (without, cached) if block % 2 == 0 else (cached, without):
                found[service] = median_ms(service, bodies)
            ratios.append(found[cached] / found[without])
            plain.append(found[without])
        metrics = Client(cached.port).send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    chance = np.random.default_rng(1)
    drawn_again = [median(chance.choice(ratios, len(ratios))) for _ in range(2000)]
    low, high = np.quantile(drawn_again, (0.025, 0.975))
    misses = next(
        line for line in metrics.body.decode().splitlines() if "cache_misses_total " in line
    )
    sys.stdout.write(
        f"{median(plain):.2f} ms without the cache; with it {median(ratios) - 1:+.2%} "
        f"(95 %: {low - 1:+.2%} to {high - 1:+.2%}), {args.blocks} blocks of {BLOCK}; {misses}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
