"""Everything that fuzzing ever kept, run again: each is read, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
KEPT = [path for path in sorted(CORPUS.rglob("*")) if path.is_file()]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_kept_is_read_or_refused(path):
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_a_corpus(name):
    assert any(path.parent.name == name for path in KEPT)
