"""The answer to one request, as JSON and as headers: both from the same record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.request.request import STAGES, Request

_FEW = 16
"""Up to this many classes are found one by one, in a third of the time that sorting takes."""


@dataclass(slots=True)
class Prediction:
    """One class and its score."""

    index: int
    label: str
    score: float


def top_k(scores: NDArray[np.float32], classes: tuple[str, ...], k: int) -> list[Prediction]:
    """The k best classes, best first; ties go to the smaller index."""
    if k > _FEW:
        best = np.argsort(-scores, kind="stable")[:k].tolist()
        return [Prediction(i, classes[i], float(scores[i])) for i in best]
    left, found = scores.copy(), []
    for _ in range(min(k, len(scores))):
        i = int(left.argmax())
        found.append(Prediction(i, classes[i], float(left[i])))
        left[i] = -1.0
    return found


@dataclass(slots=True)
class Result:
    """What one image was found to be."""

    predictions: list[Prediction]
    scores: NDArray[np.float32]
    logits: NDArray[np.float32]


def image_ids(request_id: str, count: int) -> list[str]:
    """The id of each image, for feedback: the request's own, numbered if there are several."""
    return [request_id] if count == 1 else [f"{request_id}-{row}" for row in range(count)]


@dataclass(slots=True)
class Answer:
    """What the client gets, and the facts behind it that are not sent."""

    record: Request
    results: list[Result]
    """One per image."""

    @property
    def predictions(self) -> list[Prediction]:
        """Of the first image, which mostly is the only one."""
        return self.results[0].predictions

    def to_dict(self, *, many: bool = False) -> dict[str, Any]:
        """The JSON answer; for a list of images `answers` takes the place of `predictions`."""
        record, timing = self.record, self.record.timing
        assert record.point is not None
        return {
            "request_id": record.request_id,
            "model": record.model,
            "model_version": record.model_version,
            **({"answers": self._answers()} if many else {"predictions": _shown(self.predictions)}),
            "resolution": record.point.resolution,
            "mode": str(record.point.mode),
            "precision": record.point.precision,
            "expected_accuracy": share(record.expected_accuracy),
            "accuracy_source": record.accuracy_source,
            "reason": record.reason,
            "weights": _weights(record),
            "budget": {
                "budget_ms": record.terms.budget_ms,
                "predicted_ms": round(record.predicted_ms or 0.0, 3),
                "estimated": record.estimated,
                "bound_ms": round(record.bound_ms or 0.0, 3),
                "spent_ms": round(timing.total, 3),
                "met": None if record.terms.budget_ms is None else record.met,
            },
            "timing_ms": {
                **{stage: round(getattr(timing, stage), 3) for stage in STAGES},
                "total": round(timing.total, 3),
            },
        }

    def _answers(self) -> list[dict[str, Any]]:
        ids = image_ids(self.record.request_id, len(self.results))
        return [
            {"request_id": name, "predictions": _shown(result.predictions)}
            for name, result in zip(ids, self.results, strict=True)
        ]

    def body(self, *, many: bool = False) -> bytes:
        """The JSON answer, encoded."""
        return orjson.dumps(self.to_dict(many=many))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The same facts for clients that do not parse bodies, proxies and browsers."""
        record, timing = self.record, self.record.timing
        assert record.point is not None
        stages = ", ".join(f"{s};dur={getattr(timing, s):.3f}" for s in (*STAGES, "total"))
        found = [
            (b"x-request-id", record.request_id.encode()),
            (b"server-timing", stages.encode()),
            (b"x-san-model", _printable(f"{record.model}/{record.model_version}")),
            (b"x-san-resolution", b"%d" % record.point.resolution),
            (b"x-san-mode", record.point.mode.encode()),
            (b"x-san-precision", record.point.precision.encode()),
            (b"x-san-weights", _weights(record).encode()),
            (b"x-san-predicted-ms", b"%.3f" % (record.predicted_ms or 0.0)),
            (b"x-san-spent-ms", b"%.3f" % timing.total),
        ]
        if record.expected_accuracy is not None:
            found.append((b"x-san-expected-accuracy", b"%.4f" % record.expected_accuracy))
        if record.terms.budget_ms is not None:
            found += [
                (b"x-san-budget-ms", b"%g" % record.terms.budget_ms),
                (b"x-san-budget-met", b"true" if record.met else b"false"),
            ]
        return found


def _shown(predictions: list[Prediction]) -> list[dict[str, Any]]:
    return [{"index": p.index, "label": p.label, "score": round(p.score, 6)} for p in predictions]


def share(value: float | None) -> float | None:
    """An accuracy as it is told: no test set is large enough for more digits."""
    return None if value is None else round(value, 4)


@lru_cache(maxsize=16)
def _printable(text: str) -> bytes:
    """A bundle's name is free text; a header is not."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return shown.encode("ascii", "replace")


def _weights(record: Request) -> str:
    return "cached" if record.cached else "generated"
