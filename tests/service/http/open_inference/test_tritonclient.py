"""The unmodified tritonclient, over a real socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from examples import triton_client
from service.images.decoder import to_input
from tests.service.conftest import CLASSES, Running, picture


@pytest.fixture
def client(running: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        yield client


def image_input(*images: bytes, column: bool = False) -> triton.InferInput:
    array = np.array(images, dtype=np.object_)
    if column:
        array = array[:, np.newaxis]
    tensor = triton.InferInput("image", list(array.shape), "BYTES")
    return tensor.set_data_from_numpy(array)


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.is_model_ready("tiny", "1")
    assert not client.is_model_ready("other")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("tiny")["inputs"][0]["name"] == "image"
    assert client.get_model_metadata("tiny", "1")["versions"] == ["1"]


def test_a_jpeg_with_the_clients_defaults(client):
    result = client.infer("tiny", [image_input(picture())])
    scores = result.as_numpy("scores")
    assert scores.shape == (1, len(CLASSES))
    assert scores.dtype == np.float32
    assert scores.sum() == pytest.approx(1, abs=1e-4)
    assert result.as_numpy("logits").argmax() == scores.argmax()
    assert result.as_numpy("resolution").dtype == np.int32


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_several_images_and_the_form_of_the_output(client, column, binary):
    outputs = [triton.InferRequestedOutput("scores", binary_data=binary)]
    images = image_input(*[picture(seed=s) for s in range(3)], column=column)
    result = client.infer("tiny", [images], model_version="1", outputs=outputs)
    assert result.as_numpy("scores").shape == (3, len(CLASSES))
    assert result.as_numpy("logits") is None


@pytest.mark.parametrize("binary", [False, True])
def test_classification(client, binary):
    outputs = [triton.InferRequestedOutput("scores", binary_data=binary, class_count=3)]
    found = client.infer("tiny", [image_input(picture())], outputs=outputs).as_numpy("scores")
    assert found.shape == (1, 3)
    rows = [x.decode() if isinstance(x, bytes) else x for x in found[0]]
    values = [float(row.split(":")[0]) for row in rows]
    assert values == sorted(values, reverse=True)
    for row in rows:
        _, index, label = row.split(":")
        assert label == CLASSES[int(index)]


@pytest.mark.parametrize("binary", [False, True])
def test_a_preprocessed_tensor(client, running, binary):
    image = picture(200, 200)
    preprocessing = running.service.deployment.preprocessing
    pixels = preprocessing.normalise(to_input(image, preprocessing, 48))
    array = np.ascontiguousarray(pixels.transpose(2, 0, 1)[np.newaxis])
    tensor = triton.InferInput("pixels", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    result = client.infer("tiny", [tensor])
    assert result.as_numpy("resolution").tolist() == [48]
    other = client.infer("tiny", [image_input(image)], parameters={"resolution": 48})
    np.testing.assert_allclose(result.as_numpy("scores"), other.as_numpy("scores"), atol=1e-4)


def test_timeout_and_parameters_are_the_budget_and_the_id_comes_back(client):
    result = client.infer(
        "tiny", [image_input(picture())], request_id="r1", timeout=90_000_000, priority=1
    )
    answer = result.get_response()
    assert answer["id"] == "r1"
    assert answer["parameters"]["budget_met"] is True
    result = client.infer("tiny", [image_input(picture())], parameters={"budget_ms": 0.001})
    answer = result.get_response()
    assert answer["parameters"]["budget_met"] is False
    assert f"{answer['parameters']['resolution']} px" in answer["parameters"]["reason"]


def test_an_async_request(client):
    pending = client.async_infer("tiny", [image_input(picture())])
    assert pending.get_result().as_numpy("scores").shape == (1, len(CLASSES))


@pytest.mark.parametrize(
    ("images", "options", "status", "word"),
    [
        ([b"not an image"], {}, "400", "image"),
        ([b"%PDF-1.4 and so on"], {}, "4", ""),
        ([picture()], {"parameters": {"budget": 5}}, "422", "budget_ms"),
        ([picture()], {"parameters": {"budget_ms": 0.001, "on_miss": "refuse"}}, "422", "fits"),
        ([picture()], {"model_version": "9"}, "404", "version"),
        ([picture()], {"request_compression_algorithm": "gzip"}, "415", "Content-Encoding"),
    ],
)
def test_errors_arrive_as_the_clients_own_exception(client, images, options, status, word):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("tiny", [image_input(*images)], **options)
    assert str(caught.value.status()).startswith(status)
    assert word in caught.value.message()


def test_the_example_asks_for_the_bundle_that_is_served(running, tmp_path, monkeypatch, capsys):
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(picture())
    given = ["triton_client.py", str(photo), "--url", running.url]
    monkeypatch.setattr(sys, "argv", given)
    assert triton_client.main() == 0
    assert "class " in capsys.readouterr().out
