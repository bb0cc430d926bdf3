"""Compiled networks on disk: whole or not there, and never more than is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.engines.openvino.disk_cache import DiskCache, user_cache


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_what_is_kept_is_found_by_the_next_process(tmp_path: Path) -> None:
    DiskCache(tmp_path, 1000).save("key", b"content")
    cache = DiskCache(tmp_path, 1000)
    assert cache.load("key") == b"content"
    assert cache.load("another") is None
    cache.drop("key")
    assert cache.load("key") is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"!"])
def test_what_is_damaged_is_never_handed_out_and_goes(tmp_path: Path, damage, caplog) -> None:
    cache = DiskCache(tmp_path, 1000)
    cache.save("key", b"content")
    [path] = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load("key") is None
    assert "damaged" in caplog.text
    assert not files(tmp_path)


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 350)  # three files of a hundred bytes and their digests
    ages = {}
    for age, key in enumerate("abc"):
        cache.save(key, bytes(80))
        for path in set(files(tmp_path)) - set(ages):
            ages[path] = 1000 + age
    for path, age in ages.items():
        os.utime(path, (age, age))
    assert cache.load("a") is not None  # used: no longer the oldest
    cache.save("d", bytes(80))
    assert [key for key in "abcd" if cache.load(key) is not None] == ["a", "c", "d"]


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("in the way")
    cache = DiskCache(folder, 1000)
    cache.save("key", b"content")
    assert cache.load("key") is None


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cache = DiskCache(tmp_path, 1000)
    monkeypatch.setattr(Path, "replace", full)
    cache.save("key", b"content")
    assert not files(tmp_path)
    assert cache.load("key") is None


def test_an_operator_names_the_place(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SAN_CACHE_DIR", str(tmp_path))
    assert user_cache() == tmp_path
    monkeypatch.delenv("SAN_CACHE_DIR")
    assert user_cache().name == "san-serve"
