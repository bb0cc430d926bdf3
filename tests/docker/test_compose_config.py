"""The compose files as compose reads them."""

import pytest

from tests.docker.containers import ROOT, Engine, run

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("names", [(), ("docker-compose.gpu.yml",)])
def test_compose_accepts_the_files(engine: Engine, names: tuple[str, ...]):
    files = [word for name in ("docker-compose.yml", *names) for word in ("-f", str(ROOT / name))]
    command = ["docker", "compose", *files, "--profile", "training", "config"]
    resolved = run(*command, env=engine.env)
    assert "image: san-training:latest" in resolved
    assert ("driver: nvidia" in resolved) == bool(names)
