"""Crowds, quitters and swaps, with an engine that runs when the test says so."""

import contextlib
import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.servers.bundles import new_version
from service.request.request import Request
from service.request.terms import Terms
from tests.service.conftest import CLASSES, picture, serving, until
from tests.service.fakes import GatedEngine
from tests.service.http.test_errors import check_problem


@pytest.fixture
def engine():
    made = GatedEngine(len(CLASSES))
    yield made
    made.gate.set()
    made.building.set()


@contextlib.contextmanager
def held(running, engine, how_many=1):
    """So many requests inside, the first of them running, until the block ends."""
    until(lambda: running.service.deployment.is_complete)  # only requests run from here on
    engine.batches.clear()
    engine.gate.clear()
    with running.client() as client, ThreadPoolExecutor(how_many) as pool:
        jobs = []
        try:
            for n in range(1, how_many + 1):
                jobs.append(pool.submit(client.post, "/classify", content=picture()))
                until(lambda n=n: running.service.deployment.executor.depth == n - 1)
                until(lambda: not running.service.deployment.executor.is_idle)
            yield jobs
        finally:
            engine.gate.set()


def test_a_full_house_refuses_at_once_and_recovers(make_settings, engine):
    settings = make_settings(max_inflight=4, client_share=1.0)
    with serving(settings, engine=engine) as running, running.client() as client:
        with held(running, engine, 4) as jobs:
            refused = client.post("/classify", content=picture())
            problem = check_problem(refused, 429)
            assert int(refused.headers["retry-after"]) >= 1
            assert problem["retry_after_ms"] >= 1000
        assert [job.result().status_code for job in jobs] == [200] * 4
        assert client.post("/classify", content=picture()).status_code == 200
        assert running.service.admission.is_idle
        assert len(running.service.machinery.schedule) == 0


def test_those_who_wait_together_run_together(make_settings, engine):
    with serving(make_settings(), engine=engine) as running:
        with held(running, engine, 4) as jobs:
            until(lambda: running.service.deployment.executor.depth == 3)
        assert [job.result().status_code for job in jobs] == [200] * 4
        assert engine.batches == [1, 3]


def test_a_client_who_leaves_costs_nothing_and_harms_nobody(make_settings, engine):
    with serving(make_settings(), engine=engine) as running:
        with held(running, engine, 2) as jobs:
            image = picture()
            quitter = socket.create_connection(("127.0.0.1", running.port))
            quitter.sendall(
                b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                % len(image)
                + image
            )
            until(lambda: running.service.admission.inside == 3)
            until(lambda: running.service.deployment.executor.depth == 2)
            quitter.close()
            until(lambda: running.service.admission.inside == 2)
        assert [job.result().status_code for job in jobs] == [200] * 2
        assert engine.batches == [1, 1]
        outcomes = {key[2]: n for key, n in running.service.ledger.requests.items()}
        assert outcomes["disconnected"] == 1


def test_a_client_who_leaves_while_sending(make_settings, running):
    quitter = socket.create_connection(("127.0.0.1", running.port))
    quitter.sendall(
        b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc"
    )
    until(lambda: running.service.admission.inside >= 1)
    quitter.close()
    until(lambda: running.service.admission.is_idle)


def test_a_deadline_that_passes_in_the_queue(make_settings, engine):
    with (
        serving(make_settings(), engine=engine) as running,
        running.client() as client,
    ):
        pool = ThreadPoolExecutor(1)
        with held(running, engine) as jobs:
            # Predicted to fit, for nothing says yet how long the engine will be held.
            doomed = pool.submit(
                client.post, "/classify?budget_ms=300&on_miss=refuse", content=picture()
            )
            until(lambda: running.service.deployment.executor.depth == 1 or doomed.done())
            until(lambda: running.service.clock() > _deadline(running) or doomed.done())
        answer = doomed.result()
        check_problem(answer, answer.status_code)
        assert answer.status_code == 429
        assert "retry-after" in answer.headers
        assert jobs[0].result().status_code == 200
        assert engine.batches == [1]
        pool.shutdown()


@pytest.mark.parametrize(("crowd", "status"), [(1, 200), (10, 429)])
def test_a_late_answer_is_worth_giving_unless_others_wait_for_it(
    crowd, status, make_settings, engine
):
    with (
        serving(make_settings(max_batch=8), engine=engine) as running,
        running.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with held(running, engine, crowd) as jobs:
            late = pool.submit(client.post, "/classify?budget_ms=300", content=picture())
            until(lambda: running.service.deployment.executor.depth == crowd)
            until(lambda: running.service.clock() > _deadline(running))
        assert late.result().status_code == status
        assert [job.result().status_code for job in jobs] == [200] * crowd


@pytest.mark.parametrize(("query", "status"), [("?budget_ms=0.001", 429), ("", 200)])
def test_who_is_late_from_the_start_does_not_wait_for_ever_unless_it_has_the_time(
    query, status, make_settings, engine
):
    with (
        serving(make_settings(patience_ms=200), engine=engine) as running,
        running.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with held(running, engine):
            late = pool.submit(client.post, f"/classify{query}", content=picture())
            until(lambda: running.service.deployment.executor.depth == 1)
            begun = running.service.clock()
            until(lambda: running.service.clock() > begun + 600)
        assert late.result().status_code == status
        if status == 429:
            check_problem(late.result(), 429)
            assert "retry-after" in late.result().headers


def _deadline(running):
    return min(request.deadline_ms for request in running.service.machinery.schedule)


def test_a_cold_resolution_does_not_stall_the_others(make_settings, engine):
    with (
        serving(make_settings(), engine=engine) as running,
        running.client() as client,
    ):
        until(lambda: running.service.deployment.is_complete)
        engine.building.clear()
        with ThreadPoolExecutor(3) as pool:
            cold = [
                pool.submit(client.post, "/classify?resolution=40", content=picture())
                for _ in range(3)
            ]
            until(lambda: running.service.admission.inside == 3)
            warm = client.post("/classify", content=picture())
            assert (warm.status_code, warm.json()["weights"]) == (200, "cached")
            assert not any(job.done() for job in cold)
            before = running.service.deployment.cache.facts.builds
            engine.building.set()
            answers = [job.result().json() for job in cold]
        assert {a["weights"] for a in answers} == {"generated"}
        assert running.service.deployment.cache.facts.builds == before + 1


def test_a_swap_drops_nobody_and_closes_the_old_engine_after_the_last(
    make_settings, engine, own_bundle
):
    with (
        serving(make_settings(bundle=own_bundle), engine=engine) as running,
        running.client() as client,
    ):
        new_version(own_bundle, "2")
        other = GatedEngine(len(CLASSES))
        with held(running, engine, 3) as jobs:
            running.service.bundles.choose_engine = lambda _: other
            # The new engine is measured on the engine thread, which the held batch occupies.
            with ThreadPoolExecutor(1) as pool:
                swap = pool.submit(client.post, "/admin/reload")
                time.sleep(0.05)
                assert not engine.closed
                engine.gate.set()
                assert swap.result().status_code == 200
        assert [job.result().status_code for job in jobs] == [200] * 3
        until(lambda: engine.closed)
        assert client.post("/classify", content=picture()).status_code == 200
        assert other.batches[-1] == 1


def test_an_engine_that_breaks_is_a_problem_without_details(
    make_settings, engine, tmp_path, caplog
):
    with (
        serving(make_settings(), engine=engine) as running,
        running.client() as client,
    ):
        point = running.service.deployment.frontier[-1].point
        until(lambda: point in running.service.deployment.cache)
        running.service.deployment.cache._store[point].error = RuntimeError("secret device")
        problem = check_problem(client.post("/classify", content=picture()), 500)
        assert "secret" not in str(problem)
        running.service.deployment.cache._store[point].error = None
        assert client.post("/classify", content=picture()).status_code == 200


def test_draining_refuses_new_requests_and_finishes_the_old(make_settings, engine):
    with (
        serving(make_settings(), engine=engine) as running,
        running.client() as client,
    ):
        with held(running, engine) as jobs:
            running.service.drain()
            check_problem(client.get("/readyz"), 503)
            check_problem(client.post("/classify", content=picture()), 503)
            assert client.get("/healthz").status_code == 200
        assert jobs[0].result().status_code == 200


def test_agreement_is_counted_when_idle(make_settings):
    settings = make_settings(agreement_fraction=1.0)
    with serving(settings) as running, running.client() as client:
        frontier = running.service.deployment.frontier
        until(lambda: frontier[-1].point in running.service.deployment.cache)
        client.post("/classify?resolution=32", content=picture())
        if len(frontier) > 1:
            until(lambda: running.service.ledger.agreement)
            assert running.service.ledger.agreement["32"].known == 1


def test_what_the_service_does_in_its_spare_time_gets_nobody_refused(make_settings):
    with serving(make_settings()) as running, running.client() as client:
        service = running.service
        until(lambda: service.deployment.is_complete)
        schedule, now = service.machinery.schedule, service.clock()

        def re_run():
            schedule.started([Request("own", Terms(), now)], now + 60_000.0)

        re_run()
        answered = client.post("/classify?budget_ms=1000", content=picture())
        assert answered.status_code == 200
        assert "No point meets 1000 ms" in answered.json()["reason"]
        re_run()
        check_problem(
            client.post("/classify?budget_ms=1000&on_miss=refuse", content=picture()), 429
        )
        schedule.enter(Request("somebody else", Terms(), now), now)
        check_problem(client.post("/classify?budget_ms=1000", content=picture()), 429)


def test_many_clients_at_once_all_get_their_answer(running):
    images = [picture(seed=n) for n in range(6)]
    alone = []
    with running.client() as client:
        alone = [
            client.post("/classify?resolution=64", content=i).json()["predictions"][0]
            for i in images
        ]

    def ask(n):
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        connection.request("POST", "/classify?resolution=64", body=images[n % 6])
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(48)))
    import json

    assert {status for status, _ in found} == {200}
    for n, (_, body) in enumerate(found):
        best = json.loads(body)["predictions"][0]
        assert best["index"] == alone[n % 6]["index"]
        assert best["score"] == pytest.approx(alone[n % 6]["score"], abs=1e-4)
    assert threading.active_count() < 60
