"""An inference answer: JSON, with raw tensors behind it where the client asked for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.http.open_inference import tensors
from service.http.open_inference.request import LOGITS, RESOLUTION, WantedOutput
from service.request.answer import Prediction

_DATATYPES = {"float32": "FP32", "int32": "INT32"}


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one image."""

    logits: NDArray[np.float32]
    scores: NDArray[np.float32]
    resolution: int
    best: Sequence[Prediction]
    """The best classes, best first; at least as many as the longest classification asks for."""


def encode_response(
    outputs: Sequence[WantedOutput],
    rows: Sequence[Row],
    *,
    model: str,
    version: str,
    id: str,  # noqa: A002 - the protocol's word
    parameters: Mapping[str, str | float | int | bool],
) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON part; None if it is JSON throughout."""
    raw: list[bytes] = []
    described = [_output(wanted, rows, raw) for wanted in outputs]
    text = orjson.dumps(
        {
            "model_name": model,
            "model_version": version,
            "id": id,
            "parameters": dict(parameters),
            "outputs": described,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
    if not any(wanted.binary for wanted in outputs):
        return text, None
    return b"".join([text, *raw]), len(text)


def _output(wanted: WantedOutput, rows: Sequence[Row], raw: list[bytes]) -> dict[str, Any]:
    """One output's description; its raw bytes, if any, go to the end of `raw`."""
    if wanted.classification:
        return _classification(wanted, rows, raw)
    array: NDArray[Any]
    if wanted.name == RESOLUTION:
        array = np.array([row.resolution for row in rows], dtype=np.int32)
    else:
        array = np.stack([getattr(row, wanted.name) for row in rows])
    datatype = _DATATYPES[array.dtype.name]
    output = {"name": wanted.name, "datatype": datatype, "shape": list(array.shape)}
    if wanted.binary:
        raw.append(tensors.to_binary(array))
        return output | {"parameters": {"binary_data_size": len(raw[-1])}}
    return output | {"data": array.reshape(-1)}


def _classification(wanted: WantedOutput, rows: Sequence[Row], raw: list[bytes]) -> dict[str, Any]:
    """The best classes as `value:index:label`."""
    count = min(wanted.classification, len(rows[0].scores))
    elements = []
    for row in rows:
        values = row.logits if wanted.name == LOGITS else row.scores
        elements += [f"{values[p.index]:.6f}:{p.index}:{p.label}" for p in row.best[:count]]
    output = {"name": wanted.name, "datatype": "BYTES", "shape": [len(rows), count]}
    if wanted.binary:
        raw.append(tensors.to_binary([element.encode() for element in elements]))
        return output | {"parameters": {"binary_data_size": len(raw[-1])}}
    return output | {"data": elements}
