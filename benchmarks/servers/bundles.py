"""Bundles for services that are to swap them."""

from __future__ import annotations

import json
from pathlib import Path

_PREFIX = 8
"""A safetensors file begins with the length of its header."""


def new_version(path: Path, version: str) -> None:
    """Replace a bundle's file by another of the same weights, as a rename does: at once."""
    content = path.read_bytes()
    end = _PREFIX + int.from_bytes(content[:_PREFIX], "little")
    header = json.loads(content[_PREFIX:end])
    facts = header["__metadata__"]
    facts["san_manifest"] = json.dumps(json.loads(facts["san_manifest"]) | {"version": version})
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors stay aligned
    beside = path.with_suffix(".new")
    beside.write_bytes(len(text).to_bytes(_PREFIX, "little") + text + content[end:])
    beside.replace(path)
