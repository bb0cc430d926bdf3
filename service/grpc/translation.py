"""gRPC messages to and from the protocol's HTTP form, which one parser and one encoder handle."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import orjson

from service.errors import TensorError
from service.grpc.messages import message

_ModelInferResponse = message("ModelInferResponse")


def to_http(request: Any) -> tuple[bytes, int]:
    """A `ModelInferRequest` as a body with binary tensors, and the length of its JSON part."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise TensorError(
            f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs."
        )
    tensors = raw or [_contents(given) for given in request.inputs]
    inputs = [
        {
            "name": given.name,
            "datatype": given.datatype,
            "shape": list(given.shape),
            "parameters": _plain(given.parameters) | {"binary_data_size": len(tensor)},
        }
        for given, tensor in zip(request.inputs, tensors, strict=True)
    ]
    outputs = [
        {"name": wanted.name, "parameters": _plain(wanted.parameters) | {"binary_data": True}}
        for wanted in request.outputs
    ]
    described: dict[str, Any] = {
        "parameters": _plain(request.parameters) | {"binary_data_output": True},
        "inputs": inputs,
    }
    if outputs:
        described["outputs"] = outputs
    if request.id:
        described["id"] = request.id
    text = orjson.dumps(described)
    return b"".join([text, *tensors]), len(text)


def from_http(body: bytes, json_size: int | None) -> Any:
    """A `ModelInferResponse` from a body that the encoder wrote."""
    text, rest = (body, b"") if json_size is None else (body[:json_size], body[json_size:])
    answer = orjson.loads(text)
    response = _ModelInferResponse(
        model_name=answer["model_name"], model_version=answer["model_version"], id=answer["id"]
    )
    _fill(response.parameters, answer["parameters"])
    at = 0
    for output in answer["outputs"]:
        size = output["parameters"]["binary_data_size"]
        response.outputs.add(
            name=output["name"], datatype=output["datatype"], shape=output["shape"]
        )
        response.raw_output_contents.append(rest[at : at + size])
        at += size
    return response


def _contents(given: Any) -> bytes:
    """A tensor that came as typed values, as its raw bytes."""
    if given.datatype == "BYTES":
        elements = given.contents.bytes_contents
        return b"".join(struct.pack("<I", len(element)) + element for element in elements)
    if given.datatype == "FP32":
        values = given.contents.fp32_contents
        return struct.pack(f"<{len(values)}f", *values)
    return b""  # of another type, which the parser refuses by name


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is not None:
            found[name] = getattr(value, kind)
    return found


def _fill(parameters: Any, values: Mapping[str, Any]) -> None:
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in values.items():
        setattr(parameters[name], kinds[type(value)], value)
