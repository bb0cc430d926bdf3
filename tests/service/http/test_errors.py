import random
import socket

import pytest

from service.http.access.limits import ClientLimits
from tests.service.conftest import CLASSES, picture, serving, until, write_bundle
from tests.service.fakes import GatedEngine


def check_problem(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert {"type", "title", "status", "detail", "request_id", "error"} <= set(problem)
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["error"] == problem["detail"]
    assert "Traceback" not in response.text
    return problem


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"hello", 400),
        (picture()[: len(picture()) // 2], 400),
        (picture(image_format="PNG")[:200], 400),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        (b"%PDF-1.4 something", 415),
        (b"GIF89a" + bytes(10), 400),
    ],
)
def test_what_is_not_a_usable_image(client, body, status):
    check_problem(client.post("/classify", content=body), status)


def test_a_bomb_is_refused_from_its_header(client):
    # A PNG that claims 20000 x 20000 pixels and has none of them.
    head = picture(image_format="PNG")
    size = (20000).to_bytes(4, "big")
    bomb = head[:16] + size + size + head[24:]
    problem = check_problem(client.post("/classify", content=bomb), 413)
    assert "20000 x 20000" in problem["detail"]


def test_too_many_bytes_are_refused_whether_announced_or_not(make_settings):
    with serving(make_settings(max_body_megabytes=0.01)) as running, running.client() as client:
        check_problem(client.post("/classify", content=bytes(20_000)), 413)
        chunked = client.post("/classify", content=iter([bytes(6_000)] * 4))
        check_problem(chunked, 413)


@pytest.mark.parametrize(
    "query",
    [
        "budget_ms=0",
        "budget=20",
        "resolution=7",
        "mode=fast",
        "top_k=0",
        "on_miss=x",
        "budget_ms=1&budget_ms=2",
    ],
)
def test_parameters_are_checked(client, query):
    check_problem(client.post(f"/classify?{query}", content=picture()), 422)


def test_a_resolution_above_the_operators_limit(client):
    check_problem(client.post("/classify?resolution=1000", content=picture()), 422)


def test_a_bundle_that_was_never_evaluated_claims_no_accuracy(make_settings, tmp_path):
    settings = make_settings(bundle=write_bundle(tmp_path / "b.safetensors", evaluated=()))
    engine = GatedEngine(len(CLASSES))
    with serving(settings, engine=engine) as running, running.client() as client:
        refused = client.post("/classify?budget_ms=0.001&on_miss=refuse", content=picture())
        problem = check_problem(refused, 422)
        assert problem["smallest_budget_ms"] > 0
        assert problem["expected_accuracy"] is None
        problem = check_problem(client.post("/classify?min_accuracy=0.001", content=picture()), 422)
        assert "No accuracy was measured" in problem["detail"]
        assert client.post("/classify", content=picture()).json()["expected_accuracy"] is None


def test_a_form_without_the_field_says_which_there_are(client):
    problem = check_problem(client.post("/classify", files={"photo": (None, b"hi")}), 422)
    assert "'photo'" in problem["detail"]


def test_the_framework_s_own_errors_are_problems_too(client):
    check_problem(client.get("/nothing-here"), 404)
    check_problem(client.get("/classify"), 405)
    check_problem(client.post("/feedback", content=b"{"), 422)
    check_problem(client.post("/feedback", json={"request_id": "x", "other": 1}), 422)
    check_problem(client.post("/resolutions/7/warm"), 422)


def test_a_slow_body_is_given_up(make_settings):
    with (
        serving(make_settings(receive_timeout_s=0.2)) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=30) as slow,
    ):
        slow.sendall(
            b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc"
        )
        assert b" 408 " in slow.recv(1000)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /classify HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v"]
)
def test_headers_that_do_not_come_are_given_up(make_settings, sent):
    settings = make_settings(receive_timeout_s=0.2)
    with (
        serving(settings, engine=GatedEngine(len(CLASSES))) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=30) as slow,
    ):
        slow.sendall(sent)
        while slow.recv(10_000):  # the answer to what was complete; then it hangs up
            pass


def test_an_idle_connection_is_kept_between_requests(make_settings):
    settings = make_settings(receive_timeout_s=0.05)
    with serving(settings, engine=GatedEngine(len(CLASSES))) as running, running.client() as client:
        begun = running.service.clock()
        assert client.get("/healthz").status_code == 200
        (kept,) = running.server.server_state.connections
        until(lambda: running.service.clock() > begun + 300)
        assert client.get("/healthz").status_code == 200
        assert running.server.server_state.connections == {kept}


def mutated(chance, image):
    """One of the ways in which files break."""
    data = bytearray(image)
    match chance.randrange(5):
        case 0:
            del data[chance.randrange(len(data)) :]
        case 1:
            for _ in range(chance.randrange(1, 30)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case 2:
            at = chance.randrange(len(data))
            data[at:at] = chance.randbytes(chance.randrange(1, 50))
        case 3:
            start = chance.randrange(len(data))
            del data[start : start + chance.randrange(1, 200)]
        case 4:
            for _ in range(5):
                data[chance.randrange(min(64, len(data)))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # Pillow's, about what is broken
def test_mutated_images_are_answered_or_refused_but_never_break_anything(client):
    chance = random.Random(5)
    formats = ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"]
    originals = [picture(64, 48, name) for name in formats]
    seen = set()
    for _ in range(400):
        response = client.post(
            "/classify?resolution=32", content=mutated(chance, chance.choice(originals))
        )
        seen.add(response.status_code)
        assert response.status_code in (200, 400, 413, 415), response.text
    assert {200, 400} <= seen
    assert client.post("/classify", content=picture()).status_code == 200


def test_whoever_is_turned_away_is_counted_and_logged(make_settings, caplog):
    caplog.set_level("INFO", logger="service.request")
    settings = make_settings(api_keys="key", max_body_megabytes=0.01, access_log=True)
    key = {"X-API-Key": "key"}
    with serving(settings, engine=GatedEngine(len(CLASSES))) as running, running.client() as client:
        client.post("/classify?budget=20", content=picture(), headers=key)
        client.post("/classify", content=bytes(20_000), headers=key)
        client.post("/classify", content=picture())
        client.post("/v2/models/tiny/infer", content=b"{", headers=key)
        client.post("/v2/models/other/infer", content=b"{}", headers=key)
        client.post("/v2/models/tiny/infer", content=bytes(20_000), headers=key)
        client.post("/v2/models/tiny/infer/", content=b"{}")
        client.get("/version")  # no request to classify: not counted
        ledger = running.service.ledger
    assert ledger.errors == {
        "parameter": 1, "body-too-large": 2, "unauthorised": 2, "tensor": 1, "unknown-model": 1
    }  # fmt: skip
    assert ledger.requests == {("none", "none", "rejected", "none"): 7}
    assert [r.facts["status"] for r in caplog.records if r.name == "service.request"] == [
        422,
        413,
        401,
        400,
        404,
        413,
        401,
    ]


def test_requests_that_are_wrong_before_their_body_count_as_refusals_too(client, monkeypatch):
    counted = []
    monkeypatch.setattr(
        ClientLimits, "penalty_s", lambda _, client, error: counted.append(error) or 0.0
    )
    refused = client.post("/classify", content=picture(), headers={"X-Budget-Ms": "0" * 30_000})
    check_problem(refused, 422)
    assert len(counted) == 1
