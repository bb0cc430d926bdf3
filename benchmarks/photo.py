"""The photos that are sent: a portrait that ships with matplotlib (public domain), re-encoded."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.cbook
from PIL import Image


def photo(longer_side: int = 500, quality: int = 95, how: str = "JPEG") -> bytes:
    """A real photo with `longer_side` pixels; 500 at the default quality are about 100 KB."""
    sample = Path(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))
    with Image.open(sample) as image:
        image = image.convert("RGB")
        factor = longer_side / max(image.size)
        size = (round(image.width * factor), round(image.height * factor))
        buffer = io.BytesIO()
        image.resize(size, Image.Resampling.LANCZOS).save(buffer, how, quality=quality)
    return buffer.getvalue()
