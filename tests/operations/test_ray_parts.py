"""The parts of `deploy/ray_serve` that need no Ray: the proxy's middleware, scaling, mail."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from deploy.ray_serve import proxy
from deploy.ray_serve.autoscaling import by_promises, needed
from deploy.ray_serve.peers import PostOffice, RayPeers
from deploy.ray_serve.replica_metrics import Toll
from service.fleet.headroom import HEADER, Headroom
from service.observability.ledger import Ledger
from service.request.request import Idle, Outcome, Request, Timing
from service.request.terms import Terms

ROOM = Headroom(((0.25, 4.0), (0.75, 20.0)), 1.5)


def pass_through(status, headers, query=b"", sent_headers=()):
    """What a client gets of a proxy whose replica answers so, and what the replica saw."""
    seen, got = {}, []

    async def app(scope, _receive, send):
        seen.update(headers=dict(scope["headers"]), due=dict(proxy.REQUESTS))
        if status is None:
            return  # as Ray does if the replica dies before it answers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"Internal Server Error"})

    async def send(message):
        got.append(message)

    scope = {"type": "http", "method": "POST", "query_string": query, "headers": list(sent_headers)}
    asyncio.run(proxy.AtTheProxy(app, lambda: 7.0)(scope, None, send))
    return got, seen


def test_the_proxy_stamps_requests_whatever_the_client_claims():
    _, seen = pass_through(200, [], sent_headers=[(b"x-san-received", b"1"), (b"a", b"b")])
    assert seen["headers"][b"x-san-received"] == b"7.000000"
    assert seen["headers"][b"a"] == b"b"


@pytest.mark.parametrize(
    ("query", "headers", "budget_ms"),
    [
        (b"budget_ms=50", [], 50),
        (b"", [(b"x-budget-ms", b"20")], 20),
        (b"budget_ms=50", [(b"x-budget-ms", b"20")], 50),
        (b"budget_ms=soon", [], 2000),
        (b"", [], 2000),
    ],
)
def test_the_router_learns_until_when_a_request_must_be_answered(query, headers, budget_ms):
    before = proxy.now_ms()
    _, seen = pass_through(200, [], query, headers)
    (due,) = seen["due"].values()
    assert before + budget_ms <= due <= proxy.now_ms() + budget_ms
    assert not proxy.REQUESTS


def test_the_router_learns_headroom_from_every_answer():
    replica = [(proxy.REPLICA, b"one"), (HEADER, ROOM.header())]
    got, _ = pass_through(429, replica)
    assert got[0]["status"] == 429
    assert proxy.REPLICAS.pop("one").headroom == ROOM


@pytest.mark.parametrize("status", [500, None])
def test_what_ray_says_in_plain_text_or_not_at_all_becomes_a_problem(status):
    got, _ = pass_through(status, [(b"content-type", b"text/plain")])
    start, body = got
    assert start["status"] == 503
    assert dict(start["headers"])[b"content-type"] == b"application/problem+json"
    problem = json.loads(body["body"])
    assert problem["type"].endswith("replica-lost")
    assert problem["request_id"]


def test_a_problem_of_the_service_is_passed_on():
    got, _ = pass_through(500, [(proxy.REPLICA, b"one")])
    assert got[0]["status"] == 500
    proxy.REPLICAS.clear()


@pytest.mark.parametrize(
    ("current", "facts", "wanted"),
    [
        (4, {"short": 0.0, "broken": 0.0, "busy": 0.5}, 4),
        (1, {"short": 0.0, "broken": 0.35, "busy": 0.4}, 2),  # refused: few are inside
        (4, {"short": 0.05, "broken": 0.0, "busy": 0.5}, 7),
        (4, {"short": 0.0, "broken": 0.0, "busy": 0.9}, 6),
        (4, {"short": 0.0, "broken": 0.0, "busy": 0.1}, 3),
        (1, {"short": 0.0, "broken": 0.0, "busy": 0.0}, 1),
    ],
)
def test_replicas_follow_what_clients_lose(current, facts, wanted):
    assert needed(current, **facts) == wanted


def test_the_policy_reads_what_the_replicas_report():
    """Ray's own delays come after it: a policy that delayed, too, would never be followed."""
    metrics = {"broken": {"a": 0.5, "b": 0.1}, "short": {"a": 0.0, "b": 0.0}}
    lost = SimpleNamespace(target_num_replicas=2, aggregated_metrics=metrics)
    quiet = SimpleNamespace(target_num_replicas=1, aggregated_metrics=None)
    assert [by_promises(lost)[0] for _ in range(3)] == [4, 4, 4]
    assert by_promises(quiet)[0] == 1


def test_what_load_cost_is_counted_between_two_looks():
    ledger = Ledger()
    toll = Toll(ledger)
    toll.since_last(0.0)
    for outcome, accuracy in ((Outcome.ANSWERED, 0.5), (Outcome.OVERLOADED, None)):
        ledger.observe(
            Request(
                "id",
                Terms(budget_ms=10.0),
                outcome=outcome,
                met=outcome is Outcome.ANSWERED,
                expected_accuracy=accuracy,
                timing=Timing(total=5.0),
                idle=Idle(feasible=True, accuracy=0.7),
            )
        )
    ledger.engine_ms += 400
    assert toll.since_last(1000.0) == {
        "short": pytest.approx(0.2),
        "broken": 0.5,
        "busy": pytest.approx(0.4),
    }
    assert toll.since_last(2000.0) == {"short": 0.0, "broken": 0.0, "busy": 0.0}


class Remote:
    """A deployment handle, without Ray."""

    def __init__(self, office):
        self._office = office

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self._office, name))


def test_replicas_answer_one_another():
    async def scene():
        office = PostOffice()
        peers = {name: RayPeers(Remote(office), name) for name in "abc"}

        def greeter(name):
            async def greet(question):
                if question == b"fail":
                    raise ValueError("no")
                return question + b" " + name.encode()

            return greet

        for name, peer in peers.items():
            await peer.open(greeter(name))
        await asyncio.sleep(0.01)
        assert await peers["a"].ask(b"hello") == {"b": b"hello b", "c": b"hello c"}
        await peers["c"].close()
        await asyncio.sleep(0.01)
        assert await office.ask("a", b"hello", patience_s=0.05) == {"b": b"hello b"}
        assert await office.ask("a", b"fail", patience_s=0.05) == {}
        for peer in peers.values():
            await peer.close()

    asyncio.run(scene())
