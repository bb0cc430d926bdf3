"""The client and the examples against a real service on a real socket."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from san_client import (
    AsyncClient,
    BadImageError,
    Client,
    ConflictError,
    ImpossibleBudgetError,
    NotFoundError,
)
from tests.service.conftest import CLASSES, TRAINED, picture

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def client(running):
    with Client(running.url, timeout_s=60) as client:
        yield client


def test_classify_and_feedback(client):
    answer = client.classify(picture(), budget_ms=50_000, top_k=2)
    assert answer.model == "tiny"
    assert len(answer.predictions) == 2
    assert answer.budget.met
    assert answer.round_trip_ms >= answer.budget.spent_ms
    assert answer.budget.budget_ms == pytest.approx(50_000, abs=1000)
    assert client.feedback(answer.request_id, label=answer.best.label).correct
    with pytest.raises(ConflictError):
        client.feedback(answer.request_id, index=0)
    with pytest.raises(NotFoundError):
        client.feedback("never-seen", index=0)


def test_an_impossible_budget_names_one_that_works(client):
    with pytest.raises(ImpossibleBudgetError) as caught:
        client.classify(picture(), budget_ms=1, resolution=96, on_miss="refuse", timeout_ms=60_000)
    assert caught.value.smallest_budget_ms > 1


def test_what_is_no_image_is_told(client):
    with pytest.raises(BadImageError):
        client.classify(b"not an image")


def test_facts_about_the_service(client):
    assert client.is_ready()
    version = client.version()
    assert (version.model, version.model_version, version.engine) == ("tiny", "1", "torch")
    points = client.resolutions()
    assert set(TRAINED) <= {point.resolution for point in points}
    assert any(point.frontier for point in points)
    assert all(point.latency_ms[1].p50 > 0 for point in points)


def test_many_at_once(running):
    async def story():
        async with AsyncClient(running.url, timeout_s=60) as client:
            images = [picture(seed=seed) for seed in range(12)]
            found = [None] * len(images)

            async def one(row):
                found[row] = await client.classify(images[row], resolution=64)

            async with anyio.create_task_group() as group:
                for row in range(len(images)):
                    group.start_soon(one, row)
            alone = [await client.classify(image, resolution=64) for image in images]
            assert [a.best.index for a in found] == [a.best.index for a in alone]

    anyio.run(story)


def example(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
    )


@pytest.fixture
def photos(tmp_path):
    paths = [tmp_path / f"{seed}.jpg" for seed in range(3)]
    for seed, path in enumerate(paths):
        path.write_bytes(picture(seed=seed))
    return [str(path) for path in paths]


def test_the_example_for_one_image(running, photos):
    done = example("classify_one.py", photos[0], "--url", running.url, "--budget-ms", "50000")
    assert done.returncode == 0, done.stderr
    assert "96 px" in done.stdout
    assert "budget met" in done.stdout
    refused = ("--url", running.url, "--budget-ms", "0.5", "--refuse")
    impossible = example("classify_one.py", photos[0], *refused)
    assert impossible.returncode == 1
    assert "smallest budget that works" in impossible.stdout


def test_the_example_for_many_images(running, photos):
    done = example("classify_many.py", *photos, "--url", running.url)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 answered" in done.stdout


def test_the_example_with_tritonclient(running, photos):
    done = example("triton_client.py", *photos, "--url", running.url, "--model", "tiny")
    assert done.returncode == 0, done.stderr
    assert sum(done.stdout.count(label) for label in CLASSES) == 15
    other = example("triton_client.py", photos[0], "--url", running.url, "--model", "other")
    assert other.returncode == 1
    assert "tiny" in other.stderr
