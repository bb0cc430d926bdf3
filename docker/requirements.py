"""Print the dependencies of a pyproject.toml, and those of the extras named, one per line.

An image installs these in a layer of their own, before the code is there.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """The lines."""
    project = tomllib.loads(pyproject.read_text())["project"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    file, names = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    sys.stdout.write("\n".join(requirements(Path(file), names.replace(",", " ").split())) + "\n")
