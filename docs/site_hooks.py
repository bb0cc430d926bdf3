"""Puts into the site what lives elsewhere, and refuses figures that are not the results'."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "SECURITY.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE.md",
}


def on_pre_build(**_: Any) -> None:
    """Compare the figures between markers with what the benchmarks wrote."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.reporting.document import DOCUMENT, FRONT, README, fill

    for page in (README, FRONT, DOCUMENT):
        text = page.read_text(encoding="utf-8")
        if fill(text, page) != text:
            raise PluginError(
                f"{page.name} has stale figures: python -m benchmarks.all --document renews them."
            )


def on_files(files: Files, config: Any) -> Files:
    """Add the files."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(
            File.generated(config, page, content=text.replace("](LICENSE)", "](LICENSE.md)"))
        )
    for plot in sorted((ROOT / "benchmarks" / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links at where those files are in the site."""
    return markdown.replace("](../benchmarks/results/", "](results/").replace("](../", "](")
