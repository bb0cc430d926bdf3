"""The protocol over gRPC, as the unmodified `tritonclient` speaks it."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from service.grpc import server
from service.grpc.messages import message, methods
from service.http.open_inference.inference import infer
from tests.service.conftest import CLASSES, make_settings, picture, serving, tiny_bundle

__all__ = ["make_settings", "tiny_bundle"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def port(make_settings):
    port = free_port()
    with serving(make_settings(grpc_port=port)):
        yield port


@pytest.fixture
def client(port):
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


def images(*files: bytes) -> triton.InferInput:
    given = triton.InferInput("image", [len(files)], "BYTES")
    given.set_data_from_numpy(np.array(files, dtype=np.object_))
    return given


def test_probes_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.get_server_metadata().name == "san-serve"
    told = client.get_model_metadata("tiny")
    assert {tensor.name for tensor in told.inputs} == {"image", "pixels"}


def test_an_image_within_a_budget(client):
    best = triton.InferRequestedOutput("scores", class_count=3)
    result = client.infer(
        "tiny", [images(picture())], outputs=[best], parameters={"budget_ms": 50_000}
    )
    rows = result.as_numpy("scores")
    assert rows.shape == (1, 3)
    assert rows[0, 0].decode().split(":")[2] in CLASSES
    parameters = result.get_response().parameters
    assert parameters["resolution"].int64_param == 96
    assert parameters["budget_met"].bool_param


def test_several_images_are_one_plan(client):
    result = client.infer("tiny", [images(picture(), picture(seed=1), picture(seed=2))])
    assert result.as_numpy("logits").shape == (3, len(CLASSES))
    assert set(result.as_numpy("resolution").tolist()) == {96}


def test_typed_contents_work_too(client):
    request = service_pb2.ModelInferRequest(model_name="tiny")
    given = request.inputs.add(name="image", datatype="BYTES", shape=[1])
    given.contents.bytes_contents.append(picture())
    response = client._client_stub.ModelInfer(request)
    assert response.outputs[0].shape[0] == 1


@pytest.mark.parametrize(
    ("model", "file", "code", "sentence"),
    [
        ("other", picture(), "NOT_FOUND", "The model served here is 'tiny'"),
        ("tiny", b"no image", "INVALID_ARGUMENT", "not an image"),
    ],
)
def test_errors_keep_their_sentences(client, model, file, code, sentence):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [images(file)])
    assert code in caught.value.status()
    assert sentence in caught.value.message()


def test_keys_are_asked_for(make_settings):
    port = free_port()
    with (
        serving(make_settings(grpc_port=port, api_keys=("secret",))),
        triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        assert client.is_server_live()
        with pytest.raises(InferenceServerException, match="API key"):
            client.infer("tiny", [images(picture())])
        headers = {"authorization": "Bearer secret"}
        assert client.infer("tiny", [images(picture())], headers=headers)


def test_a_key_is_a_client_as_over_http(make_settings, monkeypatch):
    seen = []

    async def noted(pipeline, request, request_id, started_ms, client):
        seen.append(client)
        return await infer(pipeline, request, request_id, started_ms, client)

    monkeypatch.setattr(server, "infer", noted)
    port = free_port()
    with (
        serving(make_settings(grpc_port=port, api_keys=("one", "other"))),
        triton.InferenceServerClient(f"127.0.0.1:{port}") as client,
    ):
        for key in ("one", "other", "one"):
            client.infer("tiny", [images(picture())], headers={"x-api-key": key})
    assert seen[0] == seen[2] != seen[1]
    assert all(name.startswith("key:") for name in seen)


def test_our_messages_are_the_protocol_s():
    assert set(methods()) <= {
        method.name
        for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    }
    for name in (
        "ModelInferRequest",
        "ModelInferResponse",
        "InferParameter",
        "InferTensorContents",
    ):
        ours, theirs = message(name).DESCRIPTOR, service_pb2.DESCRIPTOR.message_types_by_name[name]
        assert {(f.name, f.number, f.type) for f in ours.fields} == {
            (f.name, f.number, f.type) for f in theirs.fields
        }
    assert (Path(__file__).parents[3] / "service" / "grpc" / "open_inference.proto").is_file()
