"""What the server and the model say about themselves, and the protocol's messages as documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from san_core.bundle import Manifest
from san_core.resolution import MIN_RESOLUTION
from service.http.open_inference.request import (
    IMAGE,
    LOGITS,
    MAX_IMAGES,
    PIXELS,
    RESOLUTION,
    SCORES,
)

EXTENSIONS = ("binary_tensor_data", "classification", "parameters")


_EXAMPLE = {
    "id": "a-grey-square",
    "parameters": {"budget_ms": 50},
    "inputs": [
        {
            "name": "image",
            "datatype": "BYTES",
            "shape": [1],
            "data": [
                "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAA"
                "DklEQVR4nGOIggIGyhgAKnUWgdw0pSgAAAAASUVORK5CYII="
            ],
        }
    ],
    "outputs": [{"name": "scores", "parameters": {"classification": 5}}],
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "JSON; or JSON followed by raw tensors, with the length of the JSON in "
        "`Inference-Header-Content-Length`. No Content-Type is needed.",
        "content": {
            "application/json": {"example": _EXAMPLE},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""What the document says of it beyond `InferRequestSchema`."""


class InferInputSchema(BaseModel):
    """The input: image files, or pixels that are preprocessed."""

    name: Literal["image", "pixels"]
    datatype: Literal["BYTES", "FP32"]
    shape: list[Annotated[int, Field(ge=1)]]
    parameters: dict[str, Any] = {}
    data: list[Any] | None = Field(None, description="base64 for BYTES; left out if binary")


class InferParametersSchema(BaseModel):
    """What the request asks for; every parameter of /classify but `top_k` is taken, too."""

    budget_ms: float | None = None
    timeout: int | None = Field(None, description="microseconds")
    binary_data_output: bool = False


class WantedOutputSchema(BaseModel):
    """An output that is asked for."""

    name: Literal["logits", "scores", "resolution"]
    parameters: dict[str, Any] = {}


class InferRequestSchema(BaseModel):
    """An inference request."""

    id: str | None = None
    parameters: InferParametersSchema | None = None
    inputs: list[InferInputSchema] = Field(min_length=1, max_length=1)
    outputs: list[WantedOutputSchema] = []


class ServerSchema(BaseModel):
    """Name, version and extensions."""

    name: str = "san-serve"
    version: str
    extensions: list[str] = list(EXTENSIONS)


class LiveSchema(BaseModel):
    """The server's liveness."""

    live: bool


class ReadySchema(BaseModel):
    """Readiness of the server or of a model."""

    name: str | None = None
    ready: bool


class TensorSchema(BaseModel):
    """An input or output as it is announced; -1 is any size."""

    name: str
    datatype: Literal["BYTES", "FP32", "INT32"]
    shape: list[int]


class ModelMetadataSchema(BaseModel):
    """Inputs and outputs, and what a client needs to preprocess by itself."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorSchema] = Field(description="a request has one of the two")
    outputs: list[TensorSchema]
    parameters: dict[str, Any]


class InferOutputSchema(BaseModel):
    """One output tensor; its data is behind the JSON if it has a `binary_data_size`."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = None
    data: list[float] | list[str] | None = None


class InferSchema(BaseModel):
    """The answer to an inference request."""

    model_name: str
    model_version: str
    id: str
    parameters: dict[str, Any]
    outputs: list[InferOutputSchema]


def model_metadata(manifest: Manifest, engine: str, max_resolution: int) -> ModelMetadataSchema:
    """What the model says about itself."""
    classes = manifest.network.num_classes
    preprocessing = manifest.preprocessing
    return ModelMetadataSchema(
        name=manifest.name,
        versions=[manifest.version],
        platform=f"san_{engine}",
        inputs=[
            TensorSchema(name=IMAGE, datatype="BYTES", shape=[-1]),
            TensorSchema(name=PIXELS, datatype="FP32", shape=[-1, 3, -1, -1]),
        ],
        outputs=[
            TensorSchema(name=LOGITS, datatype="FP32", shape=[-1, classes]),
            TensorSchema(name=SCORES, datatype="FP32", shape=[-1, classes]),
            TensorSchema(name=RESOLUTION, datatype="INT32", shape=[-1]),
        ],
        parameters={
            "max_images": MAX_IMAGES,
            "min_resolution": MIN_RESOLUTION,
            "max_resolution": max_resolution,
            "trained_resolutions": list(manifest.network.resolutions),
            "crop_ratio": preprocessing.crop_ratio,
            "crops": [list(pair) for pair in preprocessing.crops],
            "interpolation": preprocessing.interpolation,
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
        },
    )
