"""The documentation builds as a site: no dead link, no page that the navigation forgets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _build(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_site_builds_without_a_warning(tmp_path):
    built = _build(ROOT, tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "api.html").read_text(encoding="utf-8")
    foreign = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page)
    assert not foreign


def test_a_stale_figure_or_a_dead_link_fails_the_build(tmp_path):
    for name in ("docs", "benchmarks", "mkdocs.yml", "SECURITY.md", "CONTRIBUTING.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for name in ("README.md", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    readme, changelog = tmp_path / "README.md", tmp_path / "CHANGELOG.md"
    good = readme.read_text(encoding="utf-8")
    for page, wrong, said in (
        (readme, good.replace("| **san-serve** | ", "| **san-serve** | 1"), "stale figures"),
        (changelog, "[nowhere](docs/nowhere.md)", "nowhere.md"),
    ):
        before = page.read_text(encoding="utf-8")
        assert wrong != before
        page.write_text(wrong, encoding="utf-8")
        built = _build(tmp_path, tmp_path / "site")
        assert built.returncode != 0
        assert said in built.stdout + built.stderr
        page.write_text(before, encoding="utf-8")


def test_the_reference_names_every_parameter_and_status():
    from service.http.openapi import PROBLEMS
    from service.request.terms import PARAMETERS

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in PARAMETERS:
        assert f"`{name}`" in text
    for status in PROBLEMS:
        assert str(status) in text
