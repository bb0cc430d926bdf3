"""Classify one image within a budget.

python examples/classify_one.py photo.jpg --budget-ms 20
"""

import argparse
import sys
from pathlib import Path

from san_client import Client, ImpossibleBudgetError, SanClientError

BUDGET = {True: "met", False: "missed", None: "not named"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--budget-ms", type=float, help="none: the most accurate point")
    parser.add_argument("--refuse", action="store_true", help="rather no answer than a late one")
    args = parser.parse_args()

    with Client(args.url) as client:
        try:
            answer = client.classify(
                args.image.read_bytes(),  # before the clock of the budget starts
                budget_ms=args.budget_ms,
                on_miss="refuse" if args.refuse else "answer",
                timeout_ms=5000,  # however small the budget, hear what the service says to it
            )
        except ImpossibleBudgetError as error:
            print(f"{error}\nThe smallest budget that works: {error.smallest_budget_ms} ms.")
            return 1
        except SanClientError as error:
            print(error, file=sys.stderr)
            return 2

    for prediction in answer.predictions:
        print(f"{prediction.score:7.1%}  {prediction.label}")
    print(f"\n{answer.resolution} px, {answer.mode}. {answer.reason}")
    print(
        f"{answer.budget.spent_ms:.1f} ms on the service, {answer.round_trip_ms:.1f} ms in all; "
        f"budget {BUDGET[answer.budget.met]}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
