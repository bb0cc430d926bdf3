"""Peers' environments: made on demand, each with its own packages and our torch and OpenVINO.

A peer's packages are installed first, alone, so that they decide their own versions; then a `.pth`
file lets the environment fall back on ours for what it does not have (torch, timm, OpenVINO),
instead of downloading gigabytes again.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.peers.registry import Peer

DEFAULT_DIRECTORY = Path.home() / ".cache" / "san-serve" / "peers"
_INSTALL_SECONDS = 900.0


def ensure(peer: Peer, directory: Path = DEFAULT_DIRECTORY) -> Path:
    """The environment's `bin`, after installing what is missing."""
    home = directory / peer.name
    ready = home / "ready.txt"
    wanted = "\n".join((*peer.requirements, sysconfig.get_path("purelib"), sys.version))
    if not ready.exists() or ready.read_text() != wanted:
        print(f"Installing {peer.title} into {home} …", flush=True)
        _run([sys.executable, "-m", "venv", str(home)], peer)
        python = home / "bin" / "python"
        (_site_packages(python) / "fallback.pth").unlink(missing_ok=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, *peer.requirements], peer)
        (_site_packages(python) / "fallback.pth").write_text(sysconfig.get_path("purelib") + "\n")
        ready.write_text(wanted)
    return home / "bin"


def version(peer: Peer, directory: Path = DEFAULT_DIRECTORY) -> str:
    """The installed version of the peer itself."""
    package = peer.requirements[0].split("==")[0].split("[")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    python = directory / peer.name / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def _run(command: list[str], peer: Peer) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    if done.returncode:
        raise SystemExit(f"{peer.title} cannot be installed:\n{done.stderr[-2000:]}")
