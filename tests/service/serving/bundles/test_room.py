"""Memory is that of the container: a second bundle fits into it, or is refused with a sentence."""

import pytest

from benchmarks.servers.bundles import new_version
from service.serving.bundles import room
from service.serving.bundles.room import capacity
from service.settings import MEGA
from tests.service.conftest import picture, serving, until
from tests.service.fakes import GatedEngine
from tests.service.http.test_errors import check_problem


@pytest.fixture
def container(monkeypatch):
    """A container with so many megabytes, of which so many are left."""

    def limited(limit_mb, room_mb=None):
        left = limit_mb if room_mb is None else room_mb
        monkeypatch.setattr(room, "memory_limit", lambda: limit_mb * MEGA)
        monkeypatch.setattr(room, "memory_room", lambda: left * MEGA)

    return limited


@pytest.mark.parametrize(
    ("limit_mb", "workers", "megabytes"),
    [(100_000, 1, 1536), (4000, 1, 1536), (4000, 2, 990), (1000, 1, 390), (300, 1, 64)],
)
def test_networks_and_a_second_bundle_fit_into_the_limit(
    container, make_settings, limit_mb, workers, megabytes
):
    container(limit_mb)
    assert capacity(make_settings(workers=workers), GatedEngine(3)) == megabytes * MEGA


def test_without_a_limit_the_setting_counts(monkeypatch, make_settings):
    monkeypatch.setattr(room, "memory_limit", lambda: None)
    assert capacity(make_settings(), GatedEngine(3)) == 1536 * MEGA


def test_a_swap_that_does_not_fit_is_refused_and_the_old_bundle_serves(
    make_settings, own_bundle, container
):
    with serving(make_settings(bundle=own_bundle)) as running, running.client() as client:
        new_version(own_bundle, "2")
        before = running.service.deployment
        container(1000, 50)
        refused = check_problem(client.post("/admin/reload"), 409)
        assert "50 MB are left of the 1000 MB" in refused["detail"]
        assert running.service.deployment is before
        assert client.post("/classify", content=picture()).status_code == 200
        container(1000, 500)
        assert client.post("/admin/reload").status_code == 200
        assert running.service.deployment is not before


def test_what_clients_pinned_makes_room_first(make_settings, own_bundle, container):
    with serving(make_settings(bundle=own_bundle)) as running, running.client() as client:
        deployment = running.service.deployment
        cache = deployment.cache
        until(lambda: all(x.point in cache for x in deployment.frontier))
        assert client.post("/classify?resolution=72", content=picture()).status_code == 200
        assert 72 in {point.resolution for point in cache.points()}
        container(1000, 50)
        new_version(own_bundle, "2")
        client.post("/admin/reload")
        assert 72 not in {point.resolution for point in cache.points()}
        assert all(x.point in cache for x in deployment.frontier)
