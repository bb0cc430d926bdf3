"""The project's own files agree with each other."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.project import codecs

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
TARGETS = ("setup", "serve", "test", "check", "format", "bench", "train-smoke", "clean", "help")


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name): str(r.specifier) for r in requirements}


def test_every_constraint_is_an_exact_version_without_an_address():
    for name, specifier in pins().items():
        assert re.fullmatch(r"==[^,*]+", specifier), name
    assert "://" not in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_every_dependency_is_pinned_within_its_bounds():
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for text in (requirement for group in groups for requirement in group):
        requirement = Requirement(text)
        if requirement.name == project["name"]:
            continue
        pin = pins()[canonicalize_name(requirement.name)].removeprefix("==")
        assert requirement.specifier.contains(pin), text


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package):
    assert (ROOT / package / "__init__.py").is_file()
    assert (ROOT / package / "py.typed").is_file()


def test_the_workflow_runs_what_the_makefile_runs():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    runs = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {"make check", "make test"} <= set(runs)


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert version("san-serve") == PYPROJECT["project"]["version"]


def test_make_help_lists_the_targets():
    result = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for target in [
        "setup",
        "serve",
        "test",
        "check",
        "format",
        "bench",
        "train-smoke",
        "clean",
        "help",
    ]:
        assert re.search(rf"^  {target} +\S", result.stdout, flags=re.MULTILINE), target


def test_the_client_s_own_wheel_is_the_same_client():
    path = ROOT / "packaging" / "san-client" / "pyproject.toml"
    client = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    project = PYPROJECT["project"]
    assert client["version"] == project["version"]
    assert client["requires-python"] == project["requires-python"]
    assert client["dependencies"] == project["optional-dependencies"]["client"]


@pytest.mark.parametrize("lock", ["service", "dev"])
def test_every_locked_package_is_the_pinned_one_and_has_hashes(lock):
    text = (ROOT / f"requirements/{lock}.lock").read_text(encoding="utf-8")
    entries = re.findall(r"^([\w.\[\]-]+)==(\S+)([^\n]*(?:\n {4}[^\n]*)*)", text, re.MULTILINE)
    known = pins()
    assert len(entries) > 30
    for name, version, rest in entries:
        assert "--hash=sha256:" in rest, name
        if (pin := known.get(canonicalize_name(name))) is not None:
            assert pin == f"=={version}", name
    locked = {canonicalize_name(name) for name, _, _ in entries}
    for requirement in PYPROJECT["project"]["dependencies"]:
        assert canonicalize_name(Requirement(requirement).name) in locked
    assert "://" not in text


@pytest.mark.parametrize(
    ("name", "fixed"),
    [("pillow", "13.0"), ("starlette", "1.3.1"), ("python-multipart", "0.0.27")],
)
def test_no_version_with_a_known_hole_may_be_installed(name, fixed):
    """CVE-2026-112403 in Pillow's JPEG decoder; BadHost in Starlette; headers of form parts."""
    bounds = {Requirement(text).name: text for text in PYPROJECT["project"]["dependencies"]}
    below = f"{fixed.rsplit('.', 1)[0]}.0.dev0" if fixed != "13.0" else "12.99"
    assert not Requirement(bounds[name]).specifier.contains(below, prereleases=True)
    assert Requirement(bounds[name]).specifier.contains(fixed)


def test_actions_are_named_by_commit():
    used = [
        line.split("uses:")[1].strip()
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for line in path.read_text().splitlines()
        if "uses:" in line
    ]
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_the_codecs_inside_the_wheels_are_named(tmp_path):
    document = tmp_path / "sbom.json"
    document.write_text('{"bomFormat": "CycloneDX", "components": [{"name": "pillow"}]}')
    codecs.main(str(document))
    found = json.loads(document.read_text())["components"]
    named = {(x["name"], x.get("description", "")) for x in found}
    assert ("libjpeg-turbo", "inside the wheel of simplejpeg") in named
    assert {"pillow", "libjpeg-turbo", "libwebp", "zlib-ng", "libtiff"} <= {n for n, _ in named}
    refs = [x["bom-ref"] for x in found if "bom-ref" in x]
    assert len(refs) == len(set(refs))


def test_an_audit_that_could_not_ask_fails():
    recipe = (ROOT / "Makefile").read_text()
    assert re.search(r"pip-audit --strict .*service\.lock", recipe)
