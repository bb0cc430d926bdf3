"""`python -m tests.fuzz TARGET [RUNS]`: coverage-guided fuzzing with atheris, from the kept corpus.

Needs `pip install atheris`. What it finds goes into tests/fuzz/corpus/TARGET, and from then on
`test_corpus.py` runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["service", "san_core", "python_multipart"]):
    from tests.fuzz.targets import TARGETS

_CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Fuzz one target."""
    name, runs = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "200000"
    corpus = _CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    work = Path(sys.argv[3]) if len(sys.argv) > 3 else corpus
    work.mkdir(parents=True, exist_ok=True)
    options = [f"-runs={runs}", "-timeout=5", "-rss_limit_mb=2000", "-max_len=4096"]
    options.append("-print_final_stats=1")
    options += [f"-artifact_prefix={corpus}/found-", str(work), str(corpus)]
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
