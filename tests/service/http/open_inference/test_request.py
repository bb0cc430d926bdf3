from __future__ import annotations

import base64
import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.errors import SanError
from service.errors import BodyTooLargeError, ParameterError, TensorError
from service.http.open_inference.request import (
    MAX_IMAGES,
    MAX_JSON_NUMBERS,
    WantedOutput,
    parse_request,
)
from service.request.terms import OnMiss

JPEG = b"\xff\xd8\xff\xe0 not really one"


def elements(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def message(
    *, raw: bytes | None = None, tensor: dict[str, Any] | None = None, **members: Any
) -> tuple[bytes, str | None]:
    given = {"name": "image", "datatype": "BYTES", "shape": [1]} | (tensor or {})
    if raw is not None:
        given.setdefault("parameters", {"binary_data_size": len(raw)})
    text = json.dumps({"inputs": [given]} | members).encode()
    return text + (raw or b""), None if raw is None else str(len(text))


def image_message(**members: Any) -> tuple[bytes, str | None]:
    return message(raw=elements(JPEG), **members)


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_binary_images(shape):
    request = parse_request(*message(raw=elements(JPEG, b"two"), tensor={"shape": shape}))
    assert request.images == (JPEG, b"two")
    assert request.pixels is None
    assert len(request) == 2


@pytest.mark.parametrize("nested", [False, True])
def test_json_images_are_base64(nested):
    text = base64.b64encode(JPEG).decode()
    given = {"shape": [1, 1], "data": [[text]] if nested else [text]}
    assert parse_request(*message(tensor=given)).images == (JPEG,)


def test_many_numbers_in_json_are_refused_before_they_are_read():
    numbers = b'{"inputs": [' + b"0," * (MAX_JSON_NUMBERS + 1)
    with pytest.raises(BodyTooLargeError, match="binary"):
        parse_request(numbers)
    with pytest.raises(TensorError):  # longer, but not of numbers
        parse_request(b'{"inputs": ["' + b"0" * (2 * MAX_JSON_NUMBERS) + b'"]}')


def test_binary_pixels_become_nhwc_and_pin_their_resolution():
    sent = np.random.default_rng(0).normal(size=(2, 3, 40, 40)).astype("<f4")
    given = {"name": "pixels", "datatype": "FP32", "shape": [2, 3, 40, 40]}
    request = parse_request(*message(raw=sent.tobytes(), tensor=given))
    assert request.pixels is not None
    np.testing.assert_array_equal(request.pixels, sent.transpose(0, 2, 3, 1))
    assert all(row.flags.c_contiguous and row.flags.writeable for row in request.pixels)
    assert request.terms.resolution == 40
    assert len(request) == 2


@pytest.mark.parametrize("nested", [False, True])
def test_json_pixels(nested):
    sent = np.arange(3 * 32 * 32, dtype=np.float32).reshape(1, 3, 32, 32) / 1000
    data = sent.tolist() if nested else sent.reshape(-1).tolist()
    given = {"name": "pixels", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": data}
    request = parse_request(*message(tensor=given))
    assert request.pixels is not None
    np.testing.assert_array_equal(request.pixels, sent.transpose(0, 2, 3, 1))


def test_all_outputs_unless_some_are_named():
    names = ["logits", "scores", "resolution"]
    assert [o.name for o in parse_request(*image_message()).outputs] == names
    everything = parse_request(*image_message(parameters={"binary_data_output": True})).outputs
    assert everything == tuple(WantedOutput(name, binary=True) for name in names)


def test_named_outputs_may_differ_from_the_default_form():
    outputs = [
        {"name": "scores", "parameters": {"classification": 3, "binary_data": False}},
        {"name": "logits"},
    ]
    request = parse_request(
        *image_message(outputs=outputs, parameters={"binary_data_output": True})
    )
    assert request.outputs == (WantedOutput("scores", False, 3), WantedOutput("logits", True))


@pytest.mark.parametrize(("asked", "looked_for"), [(0, 5), (3, 5), (40, 40)])
def test_enough_classes_are_looked_for(asked, looked_for):
    outputs = [{"name": "scores", "parameters": {"classification": asked}}, {"name": "logits"}]
    assert parse_request(*image_message(outputs=outputs)).terms.top_k == looked_for


@pytest.mark.parametrize(
    ("parameters", "header", "expected"),
    [
        ({}, None, None),
        ({"budget_ms": 5}, None, 5),
        ({"budget_ms": "7.5"}, None, 7.5),
        ({"timeout": 20_000}, None, 20),
        ({"timeout": 0}, None, None),
        ({"timeout": 10**12}, None, 600_000),
        ({"timeout": 20_000, "budget_ms": 5}, None, 5),
        ({"timeout": 2_000, "budget_ms": 5}, None, 2),
        ({}, "12", 12),
        ({"timeout": 20_000}, "12", 20),
    ],
)
def test_the_budget_is_the_shorter_of_the_two_ways_to_say_it(parameters, header, expected):
    request = parse_request(*image_message(parameters=parameters), header)
    assert request.terms.budget_ms == expected


def test_the_terms_are_those_of_every_request():
    parameters = {"resolution": 64, "mode": "proxy", "min_accuracy": 0.5, "on_miss": "refuse"}
    terms = parse_request(*image_message(parameters=parameters)).terms
    assert (terms.resolution, terms.mode, terms.min_accuracy) == (64, "proxy", 0.5)
    assert terms.on_miss is OnMiss.REFUSE


def test_what_other_servers_need_is_ignored():
    parameters = {"priority": 1, "sequence_id": 3, "sequence_start": True, "triton_x": 1}
    assert parse_request(*image_message(parameters=parameters)).terms.budget_ms is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"budget": 5},
        {"budget_ms": True},
        {"budget_ms": [5]},
        {"budget_ms": "soon"},
        {"timeout": -1},
        {"timeout": 1.5},
        {"timeout": 1, "budget_ms": "x"},
        {"resolution": 7},
        {"top_k": 5},
        {"binary_data_output": 1},
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(parameters):
    with pytest.raises(ParameterError):
        parse_request(*image_message(parameters=parameters))


def test_pixels_cannot_be_pinned_to_another_resolution():
    given = {"name": "pixels", "datatype": "FP32", "shape": [1, 3, 32, 32]}
    raw = bytes(4 * 3 * 32 * 32)
    with pytest.raises(ParameterError, match="32 px"):
        parse_request(*message(raw=raw, tensor=given, parameters={"resolution": 64}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_must_be_finite(value):
    sent = np.zeros((1, 3, 32, 32), "<f4")
    sent[0, 1, 2, 3] = value
    given = {"name": "pixels", "datatype": "FP32", "shape": [1, 3, 32, 32]}
    with pytest.raises(ParameterError, match="finite"):
        parse_request(*message(raw=sent.tobytes(), tensor=given))


def test_a_json_number_too_large_for_a_float_is_not_a_pixel():
    data = [1e300] * (3 * 32 * 32)
    given = {"name": "pixels", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": data}
    with pytest.raises(ParameterError, match="finite"):
        parse_request(*message(tensor=given))


@pytest.mark.parametrize(
    "tensor",
    [
        {"shape": [2]},
        {"shape": [0]},
        {"shape": [-1]},
        {"shape": []},
        {"shape": "1"},
        {"shape": [True]},
        {"shape": [1.0]},
        {"shape": [1, 2]},
        {"shape": [1, 1, 1]},
        {"name": "INPUT__0"},
        {"name": None},
        {"datatype": "FP32"},
        {"datatype": ["BYTES"]},
        {"parameters": {"binary_data_size": 3}},
        {"parameters": {"binary_data_size": -1}},
        {"parameters": {"binary_data_size": "25"}},
        {"parameters": {"shared_memory_region": "x"}},
        {"parameters": {}},
        {"parameters": 3},
        {"data": ["AA=="]},
    ],
)
def test_an_input_that_does_not_add_up_is_refused(tensor):
    with pytest.raises(TensorError):
        parse_request(*message(raw=elements(JPEG), tensor=tensor))


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([1, 3, 32, 32], [1.0]),
        ([1, 3, 32, 32], ["1"] * 3072),
        ([1, 3, 32, 32], [True] * 3072),
        ([1, 3, 32, 32], [[1.0], [1.0, 2.0]]),
        ([1, 3, 32, 32], [{}] * 3072),
        ([1, 3, 32, 32], 1.0),
        ([1, 3, 32, 32], None),
        ([1, 3, 32, 33], [1.0]),
        ([1, 1, 32, 32], [1.0]),
        ([3, 32, 32], [1.0]),
    ],
)
def test_pixels_that_do_not_add_up_are_refused(shape, data):
    given = {"name": "pixels", "datatype": "FP32", "shape": shape, "data": data}
    with pytest.raises(TensorError):
        parse_request(*message(tensor=given))


def test_a_resolution_out_of_range_is_a_parameter_error():
    given = {"name": "pixels", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": [0.0] * 192}
    with pytest.raises(ParameterError):
        parse_request(*message(tensor=given))


def test_too_many_images_are_refused_before_they_are_read():
    with pytest.raises(ParameterError, match=str(MAX_IMAGES)):
        parse_request(*message(raw=b"", tensor={"shape": [10**9]}))


@pytest.mark.parametrize(
    "raw",
    [b"\x01", elements(JPEG)[:-1], struct.pack("<I", 2**32 - 1) + b"x", b"", elements(b"", b"")],
)
def test_binary_images_that_do_not_add_up_are_refused(raw):
    with pytest.raises(TensorError):
        parse_request(*message(raw=raw))


@pytest.mark.parametrize("data", [["not base64!"], [3], [], None, "AA==", [["AA=="], ["AA=="]]])
def test_json_images_that_cannot_be_read_are_refused(data):
    with pytest.raises(TensorError):
        parse_request(*message(tensor={"data": data}))


@pytest.mark.parametrize(
    "outputs",
    [
        [{"name": "prob"}],
        [{"name": "scores"}, {"name": "scores"}],
        ["scores"],
        "scores",
        [{"name": "scores", "parameters": {"shared_memory_region": "x"}}],
    ],
)
def test_outputs_that_do_not_exist_are_refused(outputs):
    with pytest.raises(TensorError):
        parse_request(*image_message(outputs=outputs))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resolution", {"classification": 3}),
        ("scores", {"classification": -1}),
        ("scores", {"classification": True}),
        ("scores", {"binary_data": "yes"}),
    ],
)
def test_output_parameters_that_cannot_be_used_are_named(name, parameters):
    with pytest.raises(ParameterError):
        parse_request(*image_message(outputs=[{"name": name, "parameters": parameters}]))


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (b"", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"inputs": []}', None),
        (b'{"inputs": [1]}', None),
        (b'{"inputs": [{}], "parameters": []}', None),
        (b'{"inputs": [{}], "id": 3}', None),
        (b"{}", "3"),
        (b"{}", "-1"),
        (b"{}", "two"),
        (b"\xff\xfe", None),
        (b"[" * 5000, None),
    ],
)
def test_a_body_that_is_no_request_is_refused(body, length):
    with pytest.raises(TensorError):
        parse_request(body, length)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
WORDS = ("name", "datatype", "shape", "data", "parameters", "binary_data_size")


@given(
    tensor=st.dictionaries(st.sampled_from(WORDS), VALUES),
    parameters=VALUES,
    outputs=VALUES,
    raw=st.binary(max_size=40),
)
def test_whatever_comes_is_read_or_refused_with_a_sentence(tensor, parameters, outputs, raw):
    given_input = {"name": "image", "datatype": "BYTES", "shape": [1]} | tensor
    text = json.dumps(
        {"inputs": [given_input], "parameters": parameters, "outputs": outputs}
    ).encode()
    with suppress(SanError):
        parse_request(text + raw, str(len(text)))
