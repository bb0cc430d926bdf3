"""What a start does without, and what it says when it cannot."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

WARM_START = """
import asyncio, logging, sys
from service.app import make_service
from service.settings import Settings

logging.basicConfig(level=logging.INFO)

async def main():
    service = make_service(Settings(cache_dir=sys.argv[1], agreement_fraction=0))
    at_ready = []
    service.on_ready = lambda: at_ready.append("torch" in sys.modules)
    await service.start()
    while not at_ready:
        assert service.failure is None, service.failure
        await asyncio.sleep(0.02)
    ready = len(service.deployment.cache)
    await service.stop()
    print(at_ready[0], ready, "torch" in sys.modules)

asyncio.run(main())
"""


def start(cache: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SAN_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-c", WARM_START, str(cache)],
        capture_output=True,
        text=True,
        env=environment | {"HOME": str(home)},
        cwd=ROOT,
        timeout=240,
    )


def test_neither_a_first_start_nor_a_restart_imports_torch_or_writes_elsewhere(tmp_path):
    cache, home = tmp_path / "cache", tmp_path / "home"
    home.mkdir()
    package = sorted((ROOT / "san_core" / "default_bundle").iterdir())
    for _ in range(2):
        done = start(cache, home)
        assert done.stdout == "False 3 False\n", done.stderr
    assert any(cache.glob("*.compiled"))
    assert any(cache.glob("latency-*.json")) or "other programs use this machine" in done.stderr
    assert list(home.iterdir()) == []  # OpenVINO's telemetry would leave its mark here
    assert sorted((ROOT / "san_core" / "default_bundle").iterdir()) == package


def test_openvino_is_imported_without_its_telemetry(tmp_path):
    code = (
        "import socket, sys\n"
        "def refused(*_): sys.exit('connected')\n"
        "socket.socket.connect = socket.getaddrinfo = refused\n"
        "import service.engines.openvino.engine, openvino\n"
        "loaded = [m for m, module in sys.modules.items() if 'telemetry' in m and module]\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--bundle", "/nowhere/b.safetensors"], "There is no bundle at /nowhere/b.safetensors."),
        (["--bundle", "/"], "/ is a folder; name the bundle's .safetensors file in it."),
        (["--host", "192.0.2.1", "--port", "0"], "Cannot listen on 192.0.2.1: "),
    ],
)
def test_what_prevents_a_start_is_one_sentence(options, sentence):
    done = subprocess.run(
        [sys.executable, "-m", "san_cli", "serve", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"san serve: {sentence}")
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "san_cli", "serve", "--port", str(port)],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"san serve: Port {port} is taken: stop what listens there, or name another with --port.\n"
    )
