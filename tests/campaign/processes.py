"""The campaign's own processes."""

from __future__ import annotations

import subprocess
import sys


def run(module: str, *arguments: object) -> subprocess.Popen[str]:
    """One of them, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.campaign.{module}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def started_attacker(port: int, attack: str, *arguments: object) -> subprocess.Popen[str]:
    """An attacker that has prepared what it sends; it begins when it gets a line."""
    attacker = run("attacker", port, attack, *arguments)
    assert attacker.stdout is not None
    attacker.stdout.readline()
    return attacker


def begin(attacker: subprocess.Popen[str]) -> None:
    """Have an attacker attack."""
    assert attacker.stdin is not None
    attacker.stdin.write("\n")
    attacker.stdin.flush()
