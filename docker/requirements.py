"""Print the dependencies of a pyproject.toml, and those of the extras named, one per line.

An image installs these in a layer of their own, before the code is there.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """The lines."""
    project = tomllib.loads(pyproject.read_text())["project"]
    own = f"{project['name']}["  # an extra may name others of the project's own

    def expanded(lines: list[str]) -> list[str]:
        found: list[str] = []
        for line in lines:
            if line.startswith(own):
                for name in line.removeprefix(own).rstrip("]").split(","):
                    found += expanded(project["optional-dependencies"][name])
            else:
                found.append(line)
        return found

    lines = [*project["dependencies"], *(f"{own}{extra}]" for extra in extras)]
    return list(dict.fromkeys(expanded(lines)))


if __name__ == "__main__":
    file, names = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    sys.stdout.write("\n".join(requirements(Path(file), names.replace(",", " ").split())) + "\n")
