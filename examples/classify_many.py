"""Classify many images, no more than a few in flight.

    python examples/classify_many.py photos/*.jpg --budget-ms 100 --in-flight 8

Each image has the budget to itself. What the service refuses under load is told at the end.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from san_client import Answer, Client


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--budget-ms", type=float)
    parser.add_argument("--in-flight", type=int, default=8)
    args = parser.parse_args()

    with Client(args.url) as client:
        found = client.classify_many(
            args.images, in_flight=args.in_flight, budget_ms=args.budget_ms
        )
    for path, answer in zip(args.images, found, strict=True):
        if isinstance(answer, Answer):
            print(f"{path}: {answer.best.label} ({answer.best.score:.0%}, {answer.resolution} px)")
        else:
            print(f"{path}: {answer}", file=sys.stderr)
    answers = [answer for answer in found if isinstance(answer, Answer)]
    used = Counter(answer.resolution for answer in answers)
    shares = ", ".join(f"{count} at {resolution} px" for resolution, count in sorted(used.items()))
    late = sum(answer.budget.met is False for answer in answers)
    print(f"\n{len(answers)} of {len(found)} answered ({shares}); {late} later than allowed.")
    return 0 if len(answers) == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
