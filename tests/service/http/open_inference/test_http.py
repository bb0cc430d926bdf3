"""The protocol over a real socket, as any HTTP client would speak it."""

from __future__ import annotations

import base64
import http.client
import json
import struct
import time
from collections import Counter

import httpx
import numpy as np
import pytest

from service.images.decoder import to_input
from tests.service.conftest import CLASSES, TRAINED, picture, serving

INFER = "/v2/models/tiny/infer"


def image_tensor(*images: bytes):
    raw = b"".join(struct.pack("<I", len(image)) + image for image in images)
    tensor = {
        "name": "image",
        "datatype": "BYTES",
        "shape": [len(images)],
        "parameters": {"binary_data_size": len(raw)},
    }
    return tensor, raw


def post(client, tensor, raw=b"", path=INFER, headers=None, **members) -> httpx.Response:
    text = json.dumps({"inputs": [tensor]} | members).encode()
    length = {"Inference-Header-Content-Length": str(len(text))} if raw else {}
    return client.post(path, content=text + raw, headers=length | (headers or {}))


def outputs(response: httpx.Response) -> dict[str, dict]:
    assert response.status_code == 200, response.text
    return {output["name"]: output for output in response.json()["outputs"]}


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_server_metadata(client, path):
    response = client.get(path)
    assert response.status_code == 200
    assert response.json()["name"] == "san-serve"
    assert {"binary_tensor_data", "classification"} <= set(response.json()["extensions"])


@pytest.mark.parametrize(
    "path", ["/v2/models/tiny/", "/v2/models/tiny/versions/1/", "/v2/health/ready/"]
)
def test_a_slash_at_the_end_is_no_redirect(client, path):
    assert client.get(path).status_code == 200
    assert post(client, *image_tensor(picture()), path=f"{INFER}/").status_code == 200


def test_health(client):
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json()["ready"] is True


@pytest.mark.parametrize("path", ["/v2/models/tiny", "/v2/models/tiny/versions/1"])
def test_model_metadata_and_readiness(client, path):
    found = client.get(path).json()
    assert (found["name"], found["versions"]) == ("tiny", ["1"])
    assert {x["name"]: (x["datatype"], x["shape"]) for x in found["inputs"]} == {
        "image": ("BYTES", [-1]),
        "pixels": ("FP32", [-1, 3, -1, -1]),
    }
    assert {x["name"]: (x["datatype"], x["shape"]) for x in found["outputs"]} == {
        "logits": ("FP32", [-1, len(CLASSES)]),
        "scores": ("FP32", [-1, len(CLASSES)]),
        "resolution": ("INT32", [-1]),
    }
    assert found["parameters"]["trained_resolutions"] == list(TRAINED)
    assert client.get(f"{path}/ready").json() == {"name": "tiny", "ready": True}


@pytest.mark.parametrize(
    "path", ["/v2/models/other", "/v2/models/tiny/versions/2", "/v2/models/other/ready"]
)
def test_another_model_is_not_found(client, path):
    response = client.get(path)
    assert response.status_code == 404
    assert "'tiny'" in response.json()["error"]


@pytest.mark.parametrize("path", ["/v2/models/other/infer", "/v2/models/tiny/versions/2/infer"])
def test_another_model_does_not_infer(client, path):
    response = post(client, *image_tensor(picture()), path=path)
    assert response.status_code == 404
    assert response.json()["error"]


def test_an_image_gets_the_answer_that_classify_gives(client):
    image = picture()
    plain = client.post("/classify", params={"resolution": 64, "top_k": 8}, content=image).json()
    response = post(client, *image_tensor(image), parameters={"resolution": 64})
    found = outputs(response)
    scores = np.array(found["scores"]["data"])
    for prediction in plain["predictions"]:
        assert scores[prediction["index"]] == pytest.approx(prediction["score"], abs=1e-4)
    logits = np.array(found["logits"]["data"])
    exponent = np.exp(logits - logits.max())
    np.testing.assert_allclose(exponent / exponent.sum(), scores, atol=1e-5)
    assert found["resolution"]["data"] == [64]
    assert response.headers["x-san-resolution"] == "64"


def test_an_image_in_json_is_base64(client):
    image = picture()
    tensor = {
        "name": "image",
        "datatype": "BYTES",
        "shape": [1, 1],
        "data": [base64.b64encode(image).decode()],
    }
    wanted = [{"name": "scores"}]
    as_json = outputs(post(client, tensor, outputs=wanted))["scores"]
    binary = outputs(post(client, *image_tensor(image), outputs=wanted))["scores"]
    assert as_json["data"] == pytest.approx(binary["data"], abs=1e-5)


@pytest.mark.parametrize("resolution", [32, 64, 80])
def test_pixels_run_at_the_resolution_they_have(client, running, resolution):
    image = picture(300, 300)
    preprocessing = running.service.deployment.preprocessing
    pixels = preprocessing.normalise(to_input(image, preprocessing, resolution))
    pixels = pixels.transpose(2, 0, 1)[np.newaxis]
    raw = np.ascontiguousarray(pixels).tobytes()
    tensor = {
        "name": "pixels",
        "datatype": "FP32",
        "shape": list(pixels.shape),
        "parameters": {"binary_data_size": len(raw)},
    }
    response = post(client, tensor, raw)
    found = outputs(response)
    assert found["resolution"]["data"] == [resolution]
    assert "decode;dur=0.000" in response.headers["server-timing"]
    same = post(client, *image_tensor(image), parameters={"resolution": resolution})
    assert found["scores"]["data"] == pytest.approx(outputs(same)["scores"]["data"], abs=1e-4)


def test_several_images_keep_their_order(client):
    images = [picture(seed=seed) for seed in range(6)]
    pinned = {"resolution": 64}
    together = outputs(post(client, *image_tensor(*images), parameters=pinned))["scores"]
    assert together["shape"] == [6, len(CLASSES)]
    rows = np.array(together["data"]).reshape(6, -1)
    for row, image in zip(rows, images, strict=True):
        alone = outputs(post(client, *image_tensor(image), parameters=pinned))["scores"]["data"]
        np.testing.assert_allclose(row, alone, atol=1e-4)
    assert np.ptp(rows, axis=0).max() > 1e-3


def test_one_bad_image_refuses_the_request_and_leaves_the_service_clean(client, running):
    response = post(client, *image_tensor(picture(), b"not an image", picture()))
    assert response.status_code == 400
    assert response.json()["type"].endswith("not-an-image")
    assert running.service.admission.inside == 0
    assert len(running.service.machinery.schedule) == 0


def counted(service) -> Counter[str]:
    found = Counter()
    for (_, _, outcome, _), n in service.ledger.requests.items():
        found[outcome] += n
    return found


def test_a_request_is_counted_once_however_many_images_it_has(client, running):
    service = running.service
    outcomes, errors = counted(service), Counter(service.ledger.errors)
    # The bad one is large and comes last: others are decoded, perhaps answered, when it is found.
    whole = picture(2000, 1500, "PNG")
    images = [picture(seed=s) for s in range(4)] + [whole[: len(whole) // 2]]
    response = post(client, *image_tensor(*images), id="family")
    assert response.status_code == 400
    assert response.json()["type"].endswith("corrupt-image")
    assert counted(service) - outcomes == {"rejected": 1}
    assert Counter(service.ledger.errors) - errors == {"corrupt-image": 1}
    for row in range(5):
        judged = client.post("/feedback", json={"request_id": f"family-{row}", "index": 0})
        assert judged.status_code == 404  # nobody was given an answer


def test_the_budget_can_be_said_in_three_ways(client):
    tensor = image_tensor(picture())
    for how in (
        {"parameters": {"budget_ms": 90_000}},
        {"parameters": {"timeout": 90_000_000}},
        {"headers": {"X-Budget-Ms": "90000"}},
    ):
        response = post(client, *tensor, **how)
        assert response.headers["x-san-budget-ms"] == "90000"
        assert response.json()["parameters"]["budget_met"] is True


def test_an_impossible_budget_is_refused_with_the_smallest_that_works(client):
    parameters = {"timeout": 1, "on_miss": "refuse"}
    response = post(client, *image_tensor(picture()), parameters=parameters)
    assert response.status_code == 422
    problem = response.json()
    assert problem["smallest_budget_ms"] > 0
    assert problem["error"] == problem["detail"]


def test_the_clients_id_comes_back_and_takes_feedback(client):
    response = post(client, *image_tensor(picture()), id="my-own.id")
    assert response.json()["id"] == "my-own.id"
    assert response.headers["x-request-id"] == "my-own.id"
    judged = client.post("/feedback", json={"request_id": "my-own.id", "index": 0})
    assert judged.status_code == 200


def test_each_of_several_images_takes_feedback(client):
    post(client, *image_tensor(picture(), picture()), id="pair")
    for name in ("pair-0", "pair-1"):
        assert client.post("/feedback", json={"request_id": name, "index": 0}).status_code == 200


def test_an_id_that_cannot_be_a_header_comes_back_but_is_not_used_as_one(client):
    response = post(client, *image_tensor(picture()), id="Zürich\r\nX: 1")
    assert response.json()["id"] == "Zürich\r\nX: 1"
    assert response.headers["x-request-id"] == response.json()["parameters"]["request_id"]


def test_unnormalised_pixels_are_refused_with_a_hint(client):
    tensor = {"name": "pixels", "datatype": "FP32", "shape": [1, 3, 32, 32]}
    response = post(client, tensor | {"data": [255.0] * (3 * 32 * 32)})
    assert response.status_code == 422
    assert "mean" in response.json()["error"]


def test_a_resolution_above_the_limit_is_refused(client):
    raw = bytes(4 * 3 * 600 * 600)
    tensor = {
        "name": "pixels",
        "datatype": "FP32",
        "shape": [1, 3, 600, 600],
        "parameters": {"binary_data_size": len(raw)},
    }
    response = post(client, tensor, raw)
    assert response.status_code == 422
    assert "512" in response.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff\xd8\xff", b'{"inputs": [{}]}'])
def test_what_is_no_request_is_a_bad_request(client, body):
    response = client.post(INFER, content=body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["error"]


def test_a_compressed_body_is_not_taken(client):
    response = post(client, *image_tensor(picture()), headers={"Content-Encoding": "gzip"})
    assert response.status_code == 415


def test_a_client_that_leaves_costs_nothing_more(running):
    service = running.service
    before = service.ledger.errors["disconnected"]
    connection = http.client.HTTPConnection("127.0.0.1", running.port)
    tensor, raw = image_tensor(*[picture(2000, 1500, seed=s) for s in range(16)])
    text = json.dumps({"inputs": [tensor]}).encode()
    length = {"Inference-Header-Content-Length": str(len(text))}
    connection.request("POST", INFER, text + raw, length)
    connection.close()
    deadline = time.monotonic() + 60
    while service.ledger.errors["disconnected"] < before + 1 or service.admission.inside:
        assert time.monotonic() < deadline, service.ledger.errors
        time.sleep(0.01)
    assert len(service.machinery.schedule) == 0


def test_api_keys_guard_inference_but_not_health(make_settings):
    with serving(make_settings(api_keys="secret")) as guarded, guarded.client() as client:
        assert client.get("/v2/health/ready").status_code == 200
        refused = post(client, *image_tensor(picture()))
        assert refused.status_code == 401
        assert refused.json()["error"]
        key = {"X-API-Key": "secret"}
        assert post(client, *image_tensor(picture()), headers=key).status_code == 200
