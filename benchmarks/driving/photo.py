"""The photos that are sent: a portrait that ships with matplotlib (public domain), re-encoded."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.cbook
from PIL import Image


def photo(longer_side: int = 500, quality: int = 95, how: str = "JPEG") -> bytes:
    """A real photo in 4:3; 500 pixels at the default quality are about 90 KB."""
    sample = Path(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))
    with Image.open(sample) as image:
        size = (longer_side, longer_side * 3 // 4)
        box = (0, 0, image.width, image.width * 3 // 4)
        resized = image.convert("RGB").resize(size, Image.Resampling.LANCZOS, box)
    buffer = io.BytesIO()
    resized.save(buffer, how, quality=quality)
    return buffer.getvalue()
