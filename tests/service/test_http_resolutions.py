import threading

from service import deployment as deploying
from tests.service.conftest import serving


def test_counting_multiply_adds_does_not_hold_up_the_event_loop(make_settings, monkeypatch):
    threads = []
    count = deploying.cost

    def watched(network, resolution):
        threads.append(threading.current_thread().name)
        return count(network, resolution)

    monkeypatch.setattr(deploying, "cost", watched)
    with serving(make_settings()) as server, server.client() as client:
        assert client.get("/resolutions").status_code == 200
    assert threads
    assert {name.partition("-")[0] for name in threads} == {"build"}
