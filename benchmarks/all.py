"""Every benchmark in order, then docs/performance.md from what they wrote.

    python -m benchmarks.all [--quick] [--only load,overhead] [--bundle FILE] [--data DIR]
    python -m benchmarks.all --document

Each runs in a process of its own, one after the other: the machine should do nothing else.
`--data` (one folder of images per class) goes to `decode`, which then measures the top-1 that is
served, too. `--document` measures nothing and only writes the document again.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.reporting import document

ORDER = (
    "start", "generation", "engines", "decode", "overhead", "budgets", "end_to_end", "load",
)  # fmt: skip
"""From the parts to the whole."""
_SECONDS = 1800.0


def arguments_for(name: str, args: argparse.Namespace) -> list[str]:
    """What of our own options a benchmark is given."""
    found = ["--quick"] if args.quick else []
    if args.bundle is not None:
        found += ["--bundle", str(args.bundle)]
    if args.data is not None and name == "decode":
        found += ["--data", str(args.data)]
    return found


def run(name: str, arguments: list[str], seconds: float | None = _SECONDS) -> str:
    """Run one; returns what went wrong, or nothing."""
    print(f"\n=== {name} {'=' * (70 - len(name))}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    child = subprocess.Popen(command)
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"took longer than {seconds:.0f} s"
    finally:
        if child.poll() is None:
            child.terminate()  # it stops its servers on the way out
            child.wait()
    return f"ended with code {status}" if status else ""


def main() -> int:
    """Run them and write the document."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--quick", action="store_true", help="a smoke test; writes no document")
    options.add_argument("--only", default="", help="comma-separated names")
    options.add_argument("--bundle", type=Path, help="default: the embedded one")
    options.add_argument("--data", type=Path, help="labelled images, for the top-1 that is served")
    options.add_argument(
        "--document", action="store_true", help="write the document, measure nothing"
    )
    args = options.parse_args()
    wanted = [name for name in args.only.split(",") if name] or list(ORDER)
    unknown = [name for name in wanted if name not in ORDER]
    if unknown:
        raise SystemExit(f"No benchmark {unknown[0]!r}; known are {', '.join(ORDER)}.")
    failed: dict[str, str] = {}
    began = time.monotonic()
    for name in [] if args.document else wanted:
        if importlib.util.find_spec(f"benchmarks.{name}") is None:
            failed[name] = "does not exist"
            continue
        arguments = arguments_for(name, args)
        # However many images there are: they take as long as they take.
        problem = run(name, arguments, None if "--data" in arguments else _SECONDS)
        if problem:
            failed[name] = problem
            print(f"{name} {problem}", flush=True)
    if not args.quick:
        print(f"\n{document.write()} written", flush=True)
    print(f"{time.monotonic() - began:.0f} s; failed: {failed or 'none'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
