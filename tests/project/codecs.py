"""Names the codecs that wheels carry inside them in an SBOM: `python -m tests.project.codecs FILE`.

A wheel's metadata says nothing of the C libraries in it, and those are what decodes a stranger's
bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from PIL import features

_PILLOW = {
    "libjpeg_turbo": "libjpeg-turbo",
    "zlib": "zlib",
    "zlib_ng": "zlib-ng",
    "webp": "libwebp",
    "libtiff": "libtiff",
    "avif": "libavif",
    "jpg_2000": "openjpeg",
    "freetype2": "freetype",
    "littlecms2": "lcms2",
    "raqm": "libraqm",
    "xcb": "libxcb",
}


def codecs() -> list[dict[str, Any]]:
    """The libraries inside Pillow's wheel, as CycloneDX components."""
    found = []
    for feature, library in _PILLOW.items():
        if feature in features.features:
            version = features.version_feature(feature)
        elif feature in features.codecs:
            version = features.version_codec(feature)
        else:
            version = features.version_module(feature) if feature in features.modules else None
        if version:
            found.append(
                {
                    "type": "library",
                    "name": library,
                    "version": version,
                    "description": "inside the wheel of Pillow",
                    "purl": f"pkg:generic/{library}@{version}",
                }
            )
    return found


def main(file: str) -> None:
    """Add them to a CycloneDX document."""
    path = Path(file)
    document = json.loads(path.read_text())
    document.setdefault("components", []).extend(codecs())
    path.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
