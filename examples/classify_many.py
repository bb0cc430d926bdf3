"""Classify many images at once, no more than a few in flight.

    python examples/classify_many.py photos/*.jpg --budget-ms 100 --in-flight 8

Each image has the budget to itself. What the service refuses under load is told at the end.
"""

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path

from san_client import Answer, AsyncClient, SanClientError


async def classify_all(
    client: AsyncClient, paths: list[Path], budget_ms: float | None, in_flight: int
) -> list[Answer | SanClientError]:
    places = asyncio.Semaphore(in_flight)

    async def one(path: Path) -> Answer | SanClientError:
        async with places:
            try:
                return await client.classify(path, budget_ms=budget_ms)
            except SanClientError as error:
                return error

    return list(await asyncio.gather(*(one(path) for path in paths)))


async def run(args: argparse.Namespace) -> int:
    async with AsyncClient(args.url) as client:
        found = await classify_all(client, args.images, args.budget_ms, args.in_flight)
    for path, answer in zip(args.images, found, strict=True):
        if isinstance(answer, Answer):
            print(f"{path}: {answer.best.label} ({answer.best.score:.0%}, {answer.resolution} px)")
        else:
            print(f"{path}: {answer}", file=sys.stderr)
    answers = [answer for answer in found if isinstance(answer, Answer)]
    used = Counter(answer.resolution for answer in answers)
    shares = ", ".join(f"{count} at {resolution} px" for resolution, count in sorted(used.items()))
    met = sum(answer.budget.met for answer in answers)
    print(f"\n{len(answers)} of {len(found)} answered ({shares}); {met} within their budget.")
    return 0 if len(answers) == len(found) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--budget-ms", type=float)
    parser.add_argument("--in-flight", type=int, default=8)
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
