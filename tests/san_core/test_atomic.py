"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from san_core.atomic import replacing


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in ("old", "new"):
        with replacing(path) as draft:
            draft.write_text(content)
            assert not path.exists() or path.read_text() == "old"
        assert path.read_text() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_after_an_error_the_old_one_is_there_and_nothing_beside_it(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as one, replacing(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"  # the last to end


@pytest.mark.parametrize("durable", [False, True])
def test_a_durable_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    path, synced, sync = tmp_path / "file", [], os.fsync

    def noted(handle: int) -> None:
        synced.append((Path(f"/proc/self/fd/{handle}").readlink().name, path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with replacing(path, durable=durable) as draft:
        draft.write_text("new")
    assert synced == ([("file", False), (tmp_path.name, True)] if durable else [])
