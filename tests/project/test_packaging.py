"""The project's own files agree with each other."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
