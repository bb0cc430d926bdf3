"""What goes over the wire, for the OpenAPI document and for every route off the hot path."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class PredictionSchema(BaseModel):
    """One class and its score."""

    index: int
    label: str
    score: float = Field(ge=0, le=1)


class BudgetSchema(BaseModel):
    """What was allowed, what was predicted, what it took."""

    budget_ms: float | None = Field(description="what the client allowed; null if it did not say")
    predicted_ms: float = Field(description="median total predicted when the point was chosen")
    bound_ms: float = Field(description="the total that the promised share of answers keeps")
    estimated: bool = Field(
        False, description="the point was not measured here yet: its times lie between others'"
    )
    spent_ms: float = Field(
        description="from the first byte received to the answer's first byte sent"
    )
    met: bool | None = Field(description="null if the client named no budget")


class TimingSchema(BaseModel):
    """Milliseconds per stage; the rest of the total is overhead."""

    receive: float
    queue: float = Field(description="waiting for a decoder and for the engine")
    decode: float
    weights: float = Field(description="waiting for weights that were not cached")
    forward: float = Field(
        description="the network; on an idle service also the decoding of several images"
    )
    total: float


class ChoiceSchema(BaseModel):
    """What was chosen, why, and how long it took."""

    request_id: str
    model: str
    model_version: str
    resolution: int
    mode: Literal["proxy", "ideal", "data_free"]
    precision: Literal["float", "int8"]
    expected_accuracy: float | None = Field(
        description="top-1 accuracy of this operating point on the bundle's evaluation images; "
        "null outside of what was evaluated"
    )
    accuracy_source: Literal["measured", "interpolated"] | None = Field(
        description="`measured`: this point was evaluated. `interpolated`: it lies between two "
        "that were. null: no accuracy is claimed"
    )
    reason: str = Field(description="why this point was chosen")
    weights: Literal["cached", "generated"]
    budget: BudgetSchema
    timing_ms: TimingSchema


class ClassifySchema(ChoiceSchema):
    """The answer to one image."""

    predictions: list[PredictionSchema]

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "request_id": "5c1f0c4be6d14a0f9d2f1a77",
                "model": "efficientnet-lite0-san",
                "model_version": "1",
                "predictions": [{"index": 207, "label": "golden retriever", "score": 0.91}],
                "resolution": 160,
                "mode": "proxy",
                "precision": "float",
                "expected_accuracy": 0.71,
                "accuracy_source": "measured",
                "reason": "160 px (proxy) buys the most accuracy in time (predicted 7.1 ms of "
                "19.8 ms left); the next, 192 px (proxy), would take 15.4 ms and be in time in 96 "
                "of 100 cases.",
                "weights": "cached",
                "budget": {"budget_ms": 20, "predicted_ms": 7.3, "bound_ms": 10.2,
                    "spent_ms": 7.9, "met": True},
                "timing_ms": {
                    "receive": 0.2, "queue": 0.1, "decode": 3.0, "weights": 0.0,
                    "forward": 4.1, "total": 7.9,
                },
            }
        }
    )  # fmt: skip


class ImageAnswerSchema(BaseModel):
    """What one of several images was found to be."""

    request_id: str = Field(description="for feedback on this image")
    predictions: list[PredictionSchema]


class ClassifyManySchema(ChoiceSchema):
    """The answer to several images: one operating point and one budget for all."""

    answers: list[ImageAnswerSchema]


class PlanSchema(BaseModel):
    """What would be chosen now for an image that was not sent."""

    budget_ms: float | None
    resolution: int
    mode: str
    precision: str
    verdict: Literal["serve", "late", "impossible", "overloaded", "cold", "inaccurate"] = Field(
        description="`serve`: it would be in time. `late`: answered, but late. Else the refusal"
    )
    fits: bool = Field(description="whether the verdict is `serve`")
    reason: str
    predicted_ms: float
    expected_accuracy: float | None
    accuracy_source: Literal["measured", "interpolated"] | None
    cached: bool = Field(description="whether its weights are ready")


class ProgressSchema(BaseModel):
    """How far a service that starts is."""

    done: int = Field(description="steps done")
    total: int = Field(description="steps in all")
    seconds_left: float | None = Field(
        description="what the steps that are left took at the last start on this host; at a first "
        "start an estimate from the pace of those done; null while unknown"
    )


class ProblemSchema(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None
    error: str = Field(description="the detail again, where other clients look for it")
    progress: ProgressSchema | None = Field(
        None, description="how far the start is; only while the service is starting (503)"
    )

    model_config = ConfigDict(extra="allow")


class LatencySchema(BaseModel):
    """Milliseconds of one run of the engine, as predicted now."""

    p50: float
    p95: float
    p99: float


class AccuracySchema(BaseModel):
    """Measured accuracy, and on what."""

    top1: float
    top5: float
    dataset: str
    n: int


class OperatingPointSchema(BaseModel):
    """One operating point, on this host."""

    resolution: int
    mode: str
    precision: str
    provenance: Literal["trained", "interpolated", "extrapolated"]
    crop_ratio: float = Field(
        description="side of the centred square that is classified, over the image's shorter side"
    )
    accuracy: AccuracySchema | None
    latency_ms: dict[str, LatencySchema] = Field(
        description="by batch size, as a string: 1 and the largest"
    )
    measured: bool = Field(
        description="whether the latency was taken here; else it is scaled by pixel count from "
        "its nearest neighbour, as for points that a smaller and more accurate one rules out"
    )
    smallest_budget_ms: float = Field(
        description="smallest budget predicted to fit a 500 x 375 JPEG when idle, weights cached"
    )
    macs: int
    weight_bytes: int
    cached: bool
    cold_ms: float = Field(description="what generating its weights would add; 0 if cached")
    frontier: bool


class CachedNetworkSchema(BaseModel):
    """One main network in the weight cache."""

    resolution: int
    mode: str
    precision: str
    memory_bytes: int = Field(description="what it occupies, working memory included")
    hits: int = Field(description="requests that found it ready")
    age_s: float = Field(description="seconds since it was generated")
    generation_ms: float | None = Field(
        description="how long generating it took; null if that was part of measuring this host"
    )


class CacheSchema(BaseModel):
    """The weight cache: main networks that are ready to run, least recently used first."""

    bytes: int
    capacity_bytes: int
    hits: int
    misses: int
    evictions: int
    networks: list[CachedNetworkSchema]


class ResolutionsSchema(BaseModel):
    """Every operating point the policy knows."""

    model: str
    model_version: str
    engine: str
    device: str
    quantile: float = Field(description="the latency quantile a choice must fit the budget with")
    max_batch: int
    crop_ratio: float = Field(
        description="crop of the largest operating point; every point says its own"
    )
    drift: float = Field(
        description="recent latencies over those measured at start; 1: nothing changed"
    )
    cache: CacheSchema
    operating_points: list[OperatingPointSchema]


class WarmSchema(BaseModel):
    """One point of the weight cache."""

    resolution: int
    mode: str
    precision: str
    state: Literal["cached", "building", "evicted"]


class FeedbackRequest(BaseModel):
    """The truth about a request answered earlier: either its label or its class index."""

    request_id: str = Field(min_length=1, max_length=64)
    label: str | None = Field(None, max_length=200)
    index: int | None = Field(None, ge=0)

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"request_id": "5c1f0c4be6d14a0f9d2f1a77", "index": 207}},
    )


class FeedbackSchema(BaseModel):
    """How the answer compares with the truth."""

    request_id: str
    correct: bool
    in_top5: bool
    resolution: int


class ModelSchema(BaseModel):
    """Which bundle serves."""

    name: str
    version: str
    sha256: str
    provenance: dict[str, Any]


class VersionSchema(BaseModel):
    """What runs here."""

    version: str
    model: ModelSchema | None
    engine: str | None
    device: str | None
    engine_facts: dict[str, str]
    pid: int


class ReloadSchema(VersionSchema):
    """What serves after a reload."""

    reload: Literal["swapped", "unchanged"]
    """Unchanged: the file holds what served already."""


class StatusSchema(BaseModel):
    """A word, and why."""

    status: str
    detail: str | None = None
