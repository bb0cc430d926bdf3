"""Both clients under one contract, over a transport that answers from a script."""

from __future__ import annotations

import io
import json
import socket
import time

import anyio
import httpx
import pytest

from san_client import (
    Answer,
    AsyncClient,
    BadImageError,
    Client,
    ConflictError,
    ConnectionFailedError,
    DeadlineError,
    NotFoundError,
    OverloadedError,
    ParameterError,
    Prediction,
    ProblemError,
    ServerFailedError,
    TooLargeError,
    UnauthorisedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from san_client.http import TimeLeft

ANSWER = {
    "request_id": "r1",
    "model": "tiny",
    "model_version": "1",
    "predictions": [
        {"index": 3, "label": "cat", "score": 0.75},
        {"index": 1, "label": "dog", "score": 0.25},
    ],
    "resolution": 96,
    "mode": "proxy",
    "precision": "float",
    "expected_accuracy": 0.5,
    "accuracy_source": "measured",
    "reason": "because",
    "weights": "cached",
    "budget": {"budget_ms": 20, "predicted_ms": 9, "spent_ms": 8, "met": True},
    "timing_ms": {"receive": 1, "queue": 0, "decode": 2, "weights": 0, "forward": 4, "total": 8},
    "a_later_addition": [1, 2],
}


class Script:
    """Answers in turn and remembers what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.slept = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds):
        self.slept.append(seconds)


class Blocking:
    """The async client behind blocking methods, for one contract."""

    def __init__(self, **options):
        self._options = options

    def __getattr__(self, name):
        def call(*args, **kwargs):
            async def run():
                async with AsyncClient("http://san", **self._options) as client:
                    return await getattr(client, name)(*args, **kwargs)

            return anyio.run(run)

        return call


@pytest.fixture(params=["sync", "async"])
def make(request):
    def client(script: Script, **options):
        transport = httpx.MockTransport(script)
        if request.param == "async":
            return Blocking(transport=transport, sleep=script.sleep, **options)
        return Client("http://san", transport=transport, sleep=script.slept.append, **options)

    return client


def test_an_answer_is_typed(make):
    answer = make(Script(httpx.Response(200, json=ANSWER))).classify(b"image", budget_ms=20)
    assert isinstance(answer, Answer)
    assert answer.best == Prediction(3, "cat", 0.75)
    assert answer.budget.met
    assert answer.timing_ms.forward == 4
    assert answer.attempts == 1
    assert answer.round_trip_ms >= 0


def test_terms_go_into_the_query_and_the_image_into_the_body(make):
    script = Script(httpx.Response(200, json=ANSWER))
    make(script, api_key="secret").classify(
        b"image", resolution=64, mode="proxy", min_accuracy=0.5, top_k=3, on_miss="refuse"
    )
    (request,) = script.requests
    assert request.method == "POST"
    assert request.url.path == "/classify"
    assert dict(request.url.params) == {
        "resolution": "64",
        "mode": "proxy",
        "min_accuracy": "0.5",
        "top_k": "3",
        "on_miss": "refuse",
    }
    assert request.content == b"image"
    assert request.headers["authorization"] == "Bearer secret"


def test_a_misspelt_term_is_an_error_here_already(make):
    script = Script()
    with pytest.raises(TypeError, match=r"takes no budget; did you mean budget_ms\?"):
        make(script).classify(b"image", budget=20)
    assert not script.requests


@pytest.mark.parametrize(
    ("images", "in_flight", "wrong"),
    [
        ("photo.jpg", 8, "not one str; classify.. takes one"),
        (b"image", 8, "not one bytes"),
        ([b"image"], 0, "in_flight must be at least 1, not 0"),
    ],
)
def test_one_image_is_not_taken_for_many_nor_none_for_all(make, images, in_flight, wrong):
    script = Script()
    with pytest.raises((TypeError, ValueError), match=wrong):
        make(script).classify_many(images, in_flight=in_flight)
    assert not script.requests


@pytest.mark.parametrize("url", ["localhost:8123", "http://localhost:8123"])
def test_an_address_needs_no_scheme(url):
    script = Script(httpx.Response(200, json=ANSWER))
    with Client(url, transport=httpx.MockTransport(script)) as client:
        client.classify(b"image")
    assert str(script.requests[0].url) == "http://localhost:8123/classify"


def test_none_is_as_good_as_nothing(make):
    script = Script(httpx.Response(200, json=ANSWER))
    make(script).classify(b"image", budget_ms=None, resolution=None, top_k=None, timeout_ms=None)
    assert not script.requests[0].url.params


def test_an_image_may_be_a_path_or_a_file(make, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"image")
    for image in (
        tmp_path / "a.jpg",
        io.BytesIO(b"image"),
        bytearray(b"image"),
        memoryview(b"image"),
    ):
        script = Script(httpx.Response(200, json=ANSWER))
        make(script).classify(image)
        assert script.requests[0].content == b"image"


def test_many_images_keep_their_order_and_their_errors(make):
    class Echo(Script):
        def __call__(self, request):
            super().__call__(request)
            if request.content == b"bad":
                return httpx.Response(400, json={"detail": "no image"})
            return httpx.Response(200, json=ANSWER | {"request_id": request.content.decode()})

    script = Echo(*[None] * 5)
    found = make(script).classify_many([b"a", b"b", b"bad", b"c", b"d"], in_flight=2, top_k=2)
    assert [getattr(x, "request_id", None) for x in found] == ["a", "b", None, "c", "d"]
    assert isinstance(found[2], BadImageError)
    assert all(request.url.params["top_k"] == "2" for request in script.requests)
    assert make(Script()).classify_many([]) == []
    missing, there = make(Echo(None)).classify_many(["missing.jpg", b"a"])
    assert isinstance(missing, FileNotFoundError)
    assert there.request_id == "a"


def test_overload_is_waited_out_within_the_budget(make):
    busy = httpx.Response(429, json={"detail": "busy", "retry_after_ms": 40})
    script = Script(busy, httpx.Response(200, json=ANSWER))
    answer = make(script).classify(b"image", budget_ms=5000)
    assert answer.attempts == 2
    (slept,) = script.slept
    assert 0.040 <= slept <= 0.044
    budgets = [float(request.url.params["budget_ms"]) for request in script.requests]
    assert budgets[0] == pytest.approx(5000, abs=50)
    assert budgets[1] < budgets[0]


def test_overload_that_outlasts_the_budget_is_told_at_once(make):
    script = Script(httpx.Response(429, json={"detail": "busy", "retry_after_ms": 5000}))
    with pytest.raises(OverloadedError, match="busy"):
        make(script).classify(b"image", budget_ms=1000)
    assert script.slept == []


def test_a_dropped_connection_is_tried_again(make):
    script = Script(httpx.RemoteProtocolError("closed"), httpx.Response(200, json=ANSWER))
    assert make(script).classify(b"image").attempts == 2


def test_nobody_there(make):
    script = Script(*[httpx.ConnectError("refused")] * 3)
    with pytest.raises(ConnectionFailedError, match="refused"):
        make(script).classify(b"image")
    assert len(script.requests) == 3


def test_a_timeout_is_a_missed_deadline(make):
    with pytest.raises(DeadlineError):
        make(Script(httpx.ReadTimeout("slow"))).classify(b"image", budget_ms=5, on_miss="refuse")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadImageError),
        (401, UnauthorisedError),
        (403, UnauthorisedError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, TooLargeError),
        (415, BadImageError),
        (418, ProblemError),
        (422, ParameterError),
        (500, ServerFailedError),
    ],
)
def test_every_problem_has_its_class(make, status, kind):
    problem = {"title": "No", "detail": "A sentence.", "request_id": "r9"}
    with pytest.raises(kind) as caught:
        make(Script(httpx.Response(status, json=problem))).classify(b"image")
    assert (caught.value.status, caught.value.request_id) == (status, "r9")
    assert "A sentence." in str(caught.value)


def test_a_proxys_error_page_is_an_error_too(make):
    with pytest.raises(ServerFailedError):
        make(Script(httpx.Response(502, text="<html>"))).classify(b"image")


@pytest.mark.parametrize(
    "data", [{}, [], 3, ANSWER | {"predictions": None}, ANSWER | {"budget": 1}]
)
def test_an_answer_of_somebody_else_is_unexpected(make, data):
    with pytest.raises(UnexpectedAnswerError):
        make(Script(httpx.Response(200, json=data))).classify(b"image")


def test_feedback(make):
    judged = {"request_id": "r1", "correct": True, "in_top5": True, "resolution": 96}
    script = Script(httpx.Response(200, json=judged))
    assert make(script).feedback("r1", label="cat").correct
    assert json.loads(script.requests[0].content) == {"request_id": "r1", "label": "cat"}
    assert script.requests[0].headers["content-type"] == "application/json"
    for truth in ({}, {"label": "cat", "index": 3}):
        with pytest.raises(ValueError, match="either"):
            make(Script()).feedback("r1", **truth)


def test_readiness_is_asked_once(make):
    assert make(Script(httpx.Response(200, json={"status": "ready"}))).is_ready()
    not_ready = Script(httpx.Response(503, json={"retry_after_ms": 1}))
    assert not make(not_ready).is_ready()
    assert len(not_ready.requests) == 1
    assert not make(Script(httpx.ConnectError("refused"))).is_ready()


def test_unavailable_is_tried_again_and_then_told(make):
    down = [httpx.Response(503, json={"detail": "draining", "retry_after_ms": 1})] * 3
    with pytest.raises(UnavailableError, match="draining"):
        make(Script(*down)).version()


def test_an_async_answer_that_never_comes_is_given_up_in_time():
    async def never(request):
        await anyio.sleep_forever()

    async def story():
        client = AsyncClient("http://san", transport=httpx.MockTransport(never))
        with anyio.fail_after(10), pytest.raises(DeadlineError):
            await client.classify(b"image", budget_ms=20, on_miss="refuse")
        await client.aclose()

    anyio.run(story)


def test_the_phases_of_an_attempt_share_its_time(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    left = TimeLeft(0.05)
    assert left.get("connect") == pytest.approx(0.05)
    now += 0.03
    assert left.get("write") == pytest.approx(0.02)
    now += 1
    assert left.get("read") == 0.001


def test_the_transport_is_given_the_time_that_is_left(make):
    script = Script(httpx.Response(200, json=ANSWER))
    make(script).classify(b"image", budget_ms=5, timeout_ms=60_000, on_miss="refuse")
    assert 50 < script.requests[0].extensions["timeout"].get("read") <= 60


def test_a_service_that_accepts_and_says_nothing_is_given_up():
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}") as client,
        pytest.raises(DeadlineError),
    ):
        client.classify(b"image", budget_ms=30, on_miss="refuse")
