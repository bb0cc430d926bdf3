"""The documentation builds as a site: no dead link, no page that the navigation forgets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "api.html").read_text(encoding="utf-8")
    foreign = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page)
    assert not foreign


def test_the_reference_names_every_parameter_and_status():
    from service.http.openapi import _PROBLEMS
    from service.request.terms import PARAMETERS

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in PARAMETERS:
        assert f"`{name}`" in text
    for status in _PROBLEMS:
        assert str(status) in text
