"""An engine, the images, and the stack: each made once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from san_core.bundle import DEFAULT_BUNDLE
from tests.docker.containers import COMPOSE, ROOT, Engine, Stack
from tests.docker.traffic import Traffic, picture

BASE = (ROOT / "docker" / "Dockerfile").read_text().partition("\nFROM ")[2].split()[0]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    engine = Engine.find()
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default bundle where a test may replace it."""
    folder = tmp_path_factory.mktemp("bundles")
    folder.chmod(0o755)  # the container has a user of its own
    return Path(shutil.copy(DEFAULT_BUNDLE, folder))


@pytest.fixture(scope="session")
def stack(engine: Engine, served: Path) -> Iterator[Stack]:
    """The real compose file. Grafana is part of it wherever its image can be had."""
    pinned = {name: service["image"] for name, service in COMPOSE["services"].items()}
    images = {}
    for image, stand_in in (
        (BASE, "base"),
        (pinned["prometheus"], "prometheus"),
        (pinned["grafana"], None),
    ):
        if (name := engine.provide(image, stand_in)) is not None:
            images[image] = name
    assert {BASE, pinned["prometheus"]} <= images.keys()
    services = ["service", "prometheus"]
    if pinned["grafana"] in images:
        services.append("grafana")
    stack = Stack(
        engine,
        {
            "SAN_AGREEMENT_FRACTION": "1",
            "SAN_ADMIN_KEYS": "secret",
            "SAN_BUNDLES": str(served.parent),
            "SAN_BUNDLE": f"/bundles/{served.name}",
        },
        tuple(services),
        images=images,
    )
    try:
        stack.compose("build", "service", timeout=3600)
        stack.compose("up", "-d", "--pull", "never", "--wait", *services, timeout=900)
        yield stack
    finally:
        stack.compose("down", "-v", "--timeout", "5", check=False)


@pytest.fixture(scope="session")
def traffic(stack: Stack) -> tuple[Traffic, float, float]:
    """What was sent, and from when to when Prometheus saw it."""
    traffic = Traffic(stack.url("service"), [picture(seed) for seed in range(12)])
    start = time.time()
    traffic.learn_truth()
    for _ in range(3):
        traffic.each_kind()
        traffic.steady(12)
        # Answers are compared with the best point's while nobody is inside.
        time.sleep(6)
    traffic.burst()
    traffic.steady(12)
    # The slowest to arrive: an idle service, a scrape, two evaluations.
    deadline = time.monotonic() + 180
    while not stack.query("job:san_agreement:ratio_1h", start, time.time()):
        assert time.monotonic() < deadline, "nothing was compared with the best point"
        time.sleep(2)
    time.sleep(12)  # two scrapes and an evaluation after the last request
    return traffic, start, time.time()
