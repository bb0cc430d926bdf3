"""The campaign's short form: each attack once, then the service must answer as if nothing was."""

import threading
import time

import pytest

from tests.campaign.images import ATTACKS, WITHIN_LIMITS, attack
from tests.campaign.wire import WIRE, post
from tests.service.conftest import Running, picture, serving, until

pytestmark = pytest.mark.slow

REFUSED = {400, 413, 415, 422, 429, 431}


@pytest.fixture(scope="module")
def attacked(make_settings):
    with serving(make_settings()) as running:
        yield running


def answers(running: Running) -> None:
    with running.client() as client:
        for image in (picture(), picture(image_format="PNG")):
            assert client.post("/classify", content=image).status_code == 200
    service = running.service
    until(lambda: service.admission.inside == 0)
    until(lambda: service._next_reload is None and not service._reloading.locked())


@pytest.mark.parametrize("name", ATTACKS)
def test_an_image_is_refused_and_harms_nobody(attacked, name):
    status = post(attacked.port, attack(name))
    assert status in REFUSED or (status == 200 and name in {"gif of frames", "tiff of directories"})
    answers(attacked)


@pytest.mark.parametrize("name", WITHIN_LIMITS)
def test_an_image_that_takes_much_is_answered_and_harms_nobody(attacked, name):
    assert post(attacked.port, attack(name)) == 200
    answers(attacked)


@pytest.mark.parametrize("name", [n for n in WIRE if not n.startswith(("pins", "60"))])
def test_a_client_harms_nobody(attacked, name):
    attacker = threading.Thread(target=WIRE[name], args=(attacked.port, time.monotonic() + 0.5))
    attacker.start()
    answers(attacked)
    attacker.join(60)
    assert not attacker.is_alive()
    answers(attacked)


def test_pins_leave_the_frontier_ready(attacked):
    deployment = attacked.service.deployment
    until(lambda: all(x.point in deployment.cache for x in deployment.frontier))
    seen = [
        post(attacked.port, picture(), f"/classify?resolution={resolution}")
        for resolution in range(33, 97, 2)
    ]
    assert set(seen) <= {200, 429}
    assert 429 in seen, "one client may have a few built a minute"
    assert all(x.point in deployment.cache for x in deployment.frontier)


def test_a_forged_host_changes_no_route(attacked):
    """Starlette once built the path it routed from the Host header (BadHost)."""
    for host in ("localhost/admin/reload?", "localhost/healthz#", "localhost:1/../version"):
        assert post(attacked.port, b"", "/admin/nothing", Host=host) in {400, 403, 404, 405}
        assert post(attacked.port, picture(), "/classify", Host=host) in {200, 400, 403}
