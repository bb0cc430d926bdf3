"""Names the codecs that wheels carry inside them in an SBOM: `python -m tests.project.codecs FILE`.

A wheel's metadata says nothing of the C libraries in it, and those are what decodes a stranger's
bytes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import simplejpeg
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
    """The libraries inside the wheels that decode, as CycloneDX components."""
    found = []
    for feature, library in _PILLOW.items():
        if feature in features.features:
            version = features.version_feature(feature)
        elif feature in features.codecs:
            version = features.version_codec(feature)
        else:
            version = features.version_module(feature) if feature in features.modules else None
        if version:
            found.append(_component(library, version, "Pillow"))
    # simplejpeg has a copy of its own, which says its version only in its text.
    binary = Path(simplejpeg._jpeg.__file__).read_bytes()
    version = re.search(rb"libjpeg-turbo version (\d+\.\d+\.\d+)", binary)
    assert version is not None, "simplejpeg no longer tells its codec's version"
    found.append(_component("libjpeg-turbo", version[1].decode(), "simplejpeg"))
    return found


def _component(library: str, version: str, wheel: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"{wheel.lower()}/{library}@{version}",
        "name": library,
        "version": version,
        "description": f"inside the wheel of {wheel}",
        "purl": f"pkg:generic/{library}@{version}",
    }


def main(file: str) -> None:
    """Add them to a CycloneDX document."""
    path = Path(file)
    document = json.loads(path.read_text())
    document.setdefault("components", []).extend(codecs())
    path.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
