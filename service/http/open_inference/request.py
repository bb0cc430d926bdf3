"""An inference request as read from its body: images or pixels, the terms, the wanted outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from san_core.errors import ResolutionError
from san_core.resolution import check_resolution
from service.errors import BodyTooLargeError, ParameterError, TensorError
from service.http.open_inference import tensors
from service.request.terms import MAX_BUDGET_MS, Terms, parse_budget, parse_terms, whole_number

IMAGE = "image"
PIXELS = "pixels"
LOGITS = "logits"
SCORES = "scores"
RESOLUTION = "resolution"
OUTPUTS = (LOGITS, SCORES, RESOLUTION)
CLASSIFIABLE = (LOGITS, SCORES)

MAX_IMAGES = 64
"""Most images of one request; they are admitted, planned and run as one."""

MAX_JSON_NUMBERS = 200_000
"""Most numbers in JSON, one image of 256 px; reading them holds up other requests."""

# Other servers' parameters that mean nothing here; their clients send them unasked.
_IGNORED = frozenset({"sequence_id", "sequence_start", "sequence_end", "content_type", "headers"})
_JSON_SCALARS = (str, int, float)


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """One output the client asks for."""

    name: str
    binary: bool = False
    classification: int = 0
    """How many of the best classes are answered as text instead of the tensor; 0: the tensor."""


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request, checked as far as that is possible without the bundle."""

    id: str | None
    images: tuple[bytes, ...]
    """Image files; empty if pixels were sent."""
    pixels: NDArray[np.float32] | NDArray[np.uint8] | None
    """[n, T, T, 3]: the client's finite numbers, then bytes; None if images were sent."""
    terms: Terms
    outputs: tuple[WantedOutput, ...]

    def __len__(self) -> int:
        return len(self.images) if self.pixels is None else len(self.pixels)


def parse_request(
    body: bytes, header_length: str | None = None, budget_header: str | None = None
) -> InferRequest:
    """Read a request; raises TensorError, ParameterError or BodyTooLargeError with a sentence."""
    text, raw = tensors.split_body(body, header_length)
    _check_numbers(text)
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise TensorError(f"The body does not begin with JSON: {error}.") from None
    if not isinstance(message, dict):
        raise TensorError("The request must be a JSON object with 'inputs'.")
    name = message.get("id")
    if name is not None and not isinstance(name, str):
        raise TensorError("id must be a string.")
    parameters = _parameters(message, "the request")
    images, pixels = _input(_only_input(message), raw)
    outputs = _outputs(message.get("outputs"), _flag(parameters, "binary_data_output"))
    terms = _terms(parameters, budget_header, pixels)
    return InferRequest(
        id=name,
        images=images,
        pixels=pixels,
        # As many classes as the longest list asks for, and no fewer than feedback remembers.
        terms=replace(terms, top_k=max(terms.top_k, *(o.classification for o in outputs))),
        outputs=outputs,
    )


def _check_numbers(text: bytes) -> None:
    """Count what stands between numbers before they are read; an image in base64 has no commas."""
    if len(text) <= MAX_JSON_NUMBERS:
        return
    if np.count_nonzero(np.frombuffer(text, np.uint8) == ord(",")) > MAX_JSON_NUMBERS:
        raise BodyTooLargeError(
            f"JSON may hold at most {MAX_JSON_NUMBERS} numbers; send the tensor as binary data."
        )


def _only_input(message: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs = message.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise TensorError(f"Give one input: {IMAGE!r} (BYTES) or {PIXELS!r} (FP32).")
    found: Mapping[str, Any] = inputs[0]
    return found


def _input(
    given: Mapping[str, Any], raw: memoryview
) -> tuple[tuple[bytes, ...], NDArray[np.float32] | None]:
    name, datatype = given.get("name"), given.get("datatype")
    if (name, datatype) not in ((IMAGE, "BYTES"), (PIXELS, "FP32")):
        raise TensorError(
            f"There is no input {str(name)[:40]!r} of type {str(datatype)[:40]!r}; give {IMAGE!r} "
            f"(BYTES: image files) or {PIXELS!r} (FP32 [n, 3, T, T]: preprocessed)."
        )
    shape = tensors.read_shape(given.get("shape"), str(name))
    if shape[0] > MAX_IMAGES:
        raise ParameterError(f"At most {MAX_IMAGES} images per request, not {shape[0]}.", "shape")
    parameters = _parameters(given, f"input {name!r}")
    if "shared_memory_region" in parameters:
        raise TensorError("Shared memory is not supported; send the tensor itself.")
    size = parameters.get("binary_data_size")
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int) or size != len(raw):
            raise TensorError(
                f"Input {name!r}: binary_data_size must be the {len(raw)} bytes after the JSON."
            )
        if "data" in given:
            raise TensorError(f"Input {name!r} has both data and binary data.")
    elif len(raw):
        raise TensorError(f"Binary data follows, but input {name!r} has no binary_data_size.")
    binary = size is not None
    if name == IMAGE:
        return _images(given, shape, raw if binary else None), None
    return (), _pixels(given, shape, raw if binary else None)


def _images(
    given: Mapping[str, Any], shape: tuple[int, ...], raw: memoryview | None
) -> tuple[bytes, ...]:
    if len(shape) > 2 or shape[1:] not in ((), (1,)):
        raise TensorError(f"Input {IMAGE!r} has shape [n] or [n, 1], not {list(shape)}.")
    count = shape[0]
    if raw is not None:
        return tuple(tensors.bytes_from_binary(raw, count, IMAGE))
    return tuple(tensors.bytes_from_json(given.get("data"), count, IMAGE))


def _pixels(
    given: Mapping[str, Any], shape: tuple[int, ...], raw: memoryview | None
) -> NDArray[np.float32]:
    """[n, 3, T, T] as sent -> [n, T, T, 3], a copy of its own."""
    if len(shape) != 4 or shape[1] != 3 or shape[2] != shape[3]:
        raise TensorError(f"Input {PIXELS!r} has shape [n, 3, T, T], not {list(shape)}.")
    try:
        check_resolution(shape[2])
    except ResolutionError as error:
        raise ParameterError(str(error), "shape") from error
    array: NDArray[Any]
    if raw is not None:
        array = tensors.floats_from_binary(raw, shape, PIXELS)
    else:
        array = tensors.floats_from_json(given.get("data"), shape, PIXELS)
    # Before the cast: a double that is too large for FP32 is not a pixel either.
    if not np.isfinite(array).all() or np.abs(array).max() > np.finfo(np.float32).max:
        raise ParameterError(f"Input {PIXELS!r} holds values that are not finite.", PIXELS)
    return np.array(array.transpose(0, 2, 3, 1), dtype=np.float32, order="C")


def _terms(
    parameters: Mapping[str, Any], budget_header: str | None, pixels: NDArray[np.float32] | None
) -> Terms:
    """The terms, by the same rules as everywhere; pixels pin their resolution."""
    given: dict[str, str] = {}
    for name, value in parameters.items():
        if name in _IGNORED or name == "binary_data_output" or name.startswith("triton_"):
            continue
        if name == "top_k":
            raise ParameterError(
                "top_k belongs to an output here: give it the parameter classification.", name
            )
        if isinstance(value, bool) or not isinstance(value, _JSON_SCALARS):
            raise ParameterError(f"The parameter {name[:40]!r} must be a number or a string.", name)
        given[name] = str(value)
    # 0 means none; more than the longest budget is that.
    timeout_us = whole_number(given.pop("timeout", "0"), "timeout", " of microseconds")
    timeout, budget = min(timeout_us / 1000, MAX_BUDGET_MS), given.get("budget_ms")
    if timeout and (budget is None or timeout < parse_budget(budget)):
        given["budget_ms"] = str(timeout)
    if pixels is not None:
        pinned = str(pixels.shape[1])
        if given.setdefault("resolution", pinned) != pinned:
            raise ParameterError(
                f"The pixels have {pinned} px; another resolution cannot be pinned.", "resolution"
            )
    # As Triton has it: 1 goes first, larger numbers after it; 0 is the default, which is 2.
    priority = (whole_number(given.pop("priority", "0"), "priority") or 2) - 2
    return replace(parse_terms(given.items(), budget_header), priority=priority)


def _outputs(given: Any, binary: bool) -> tuple[WantedOutput, ...]:
    """What the client lists; everything if it lists nothing."""
    if given is None or given == []:
        return tuple(WantedOutput(name, binary) for name in OUTPUTS)
    if not isinstance(given, list) or not all(isinstance(output, dict) for output in given):
        raise TensorError("outputs must be a list of objects with a name.")
    wanted: list[WantedOutput] = []
    for output in given:
        name = output.get("name")
        if name not in OUTPUTS:
            raise TensorError(f"There is no output {str(name)[:40]!r}; have {', '.join(OUTPUTS)}.")
        if any(name == other.name for other in wanted):
            raise TensorError(f"Output {name!r} is asked for twice.")
        parameters = _parameters(output, f"output {name!r}")
        if "shared_memory_region" in parameters:
            raise TensorError("Shared memory is not supported; the tensor is in the answer.")
        own = _flag(parameters, "binary_data") if "binary_data" in parameters else binary
        wanted.append(WantedOutput(name, own, _classification(name, parameters)))
    return tuple(wanted)


def _classification(name: str, parameters: Mapping[str, Any]) -> int:
    count = parameters.get("classification", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ParameterError("classification must be a whole number of classes.", "classification")
    if count and name not in CLASSIFIABLE:
        raise ParameterError(f"Output {name!r} is no classification.", "classification")
    return count


def _parameters(message: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    parameters = message.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TensorError(f"The parameters of {where} must be an object.")
    return parameters


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise ParameterError(f"{name} must be true or false.", name)
    return value
