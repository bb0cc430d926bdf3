"""Write the dashboards that Grafana is provisioned with.

python docker/grafana/generate.py            write docker/grafana/dashboards/*.json
python docker/grafana/generate.py --check    only say whether they are up to date
"""

import json
import sys
from pathlib import Path

import accuracy
import latency_and_budgets
import weights

FOLDER = Path(__file__).parent / "dashboards"
FILES = {
    "latency-and-budgets.json": latency_and_budgets.DASHBOARD,
    "accuracy.json": accuracy.DASHBOARD,
    "weights.json": weights.DASHBOARD,
}


def main(*, check: bool) -> int:
    """Write them, or compare."""
    stale = []
    for name, dashboard in FILES.items():
        text = json.dumps(dashboard.to_json(), indent=2) + "\n"
        path = FOLDER / name
        if check:
            if not path.is_file() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        sys.stderr.write(f"Out of date: {', '.join(stale)}. Run `python {sys.argv[0]}`.\n")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
