from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from service.http.open_inference.request import WantedOutput
from service.http.open_inference.response import Row, encode_response
from service.request.answer import top_k

CLASSES = ("cat", "dog", "Zürich: lake")


def row(logits, scores, resolution):
    found = np.array(scores, np.float32)
    return Row(np.array(logits, np.float32), found, resolution, top_k(found, CLASSES, 5))


ROWS = [row([1, 3, 2], [0.1, 0.6, 0.3], 64), row([-1, 0, 5], [0, 0.25, 0.75], 48)]


def encode(*outputs: WantedOutput):
    body, length = encode_response(
        outputs, ROWS, model="m", version="1", id="abc", parameters={"budget_met": True}
    )
    return json.loads(body[:length]), body[length:] if length is not None else b""


def test_json_tensors():
    message, raw = encode(WantedOutput("scores"), WantedOutput("resolution"))
    assert raw == b""
    scores, resolution = message.pop("outputs")
    assert message == {
        "model_name": "m",
        "model_version": "1",
        "id": "abc",
        "parameters": {"budget_met": True},
    }
    assert (scores["name"], scores["datatype"], scores["shape"]) == ("scores", "FP32", [2, 3])
    assert scores["data"] == pytest.approx([0.1, 0.6, 0.3, 0, 0.25, 0.75])
    assert resolution == {"name": "resolution", "datatype": "INT32", "shape": [2], "data": [64, 48]}


def test_binary_tensors_follow_in_order():
    message, raw = encode(
        WantedOutput("resolution", binary=True),
        WantedOutput("scores"),
        WantedOutput("logits", binary=True),
    )
    first, second, third = message["outputs"]
    assert first["parameters"] == {"binary_data_size": 8}
    assert "data" not in first
    assert len(second["data"]) == 6
    assert third["parameters"] == {"binary_data_size": 24}
    assert np.frombuffer(raw[:8], "<i4").tolist() == [64, 48]
    assert np.frombuffer(raw[8:], "<f4").tolist() == [1, 3, 2, -1, 0, 5]


def test_classification_is_value_index_label_best_first():
    message, _ = encode(WantedOutput("logits", classification=2))
    (output,) = message["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 2])
    assert output["data"] == [
        "3.000000:1:dog",
        "2.000000:2:Zürich: lake",
        "5.000000:2:Zürich: lake",
        "0.000000:1:dog",
    ]


def test_binary_classification_has_a_length_before_each_element():
    message, raw = encode(WantedOutput("scores", binary=True, classification=1))
    assert message["outputs"][0]["parameters"] == {"binary_data_size": len(raw)}
    (size,) = struct.unpack_from("<I", raw)
    assert raw[4 : 4 + size].decode() == "0.600000:1:dog"


def test_no_more_classes_than_there_are():
    message, _ = encode(WantedOutput("scores", classification=1000))
    assert message["outputs"][0]["shape"] == [2, 3]
