"""Ground truth that arrives later: a bounded memory of answers, and what became of them."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from dataclasses import dataclass

from service.errors import (
    OutdatedFeedbackError,
    ParameterError,
    RepeatedFeedbackError,
    UnknownFeedbackError,
)


@dataclass(slots=True)
class Remembered:
    """One answer that feedback may be given for."""

    resolution: int
    model: tuple[str, str]
    """Name and version of the bundle that answered."""
    best: tuple[int, ...]
    """Class indices, best first (five at most)."""
    expected_accuracy: float | None = None
    judged: bool = False
    bundle: str = ""
    """SHA-256 of the bundle that answered."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Feedback, compared with the answer."""

    resolution: int
    correct: bool
    in_top5: bool
    expected_accuracy: float | None = None
    """What was expected of the answer, if its operating point was ever evaluated."""
    bundle: str = ""
    """SHA-256 of the bundle that answered."""


class FeedbackStore:
    """Remembers the last answers; the oldest make room."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._answers: OrderedDict[str, Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._answers

    def remember(self, request_id: str, answer: Remembered) -> None:
        """Keep an answer; a request id used again replaces the earlier one."""
        self._answers.pop(request_id, None)
        self._answers[request_id] = answer
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)

    def bundle_of(self, request_id: str) -> str | None:
        """Which bundle gave an answer that is remembered."""
        answer = self._answers.get(request_id)
        return None if answer is None else answer.bundle

    def check_model(self, request_id: str, model: tuple[str, str]) -> None:
        """Raise if the answer is remembered, but as another bundle's."""
        answer = self._answers.get(request_id)
        if answer is not None and answer.model != model:
            raise OutdatedFeedbackError(
                f"Request {request_id[:64]!r} was answered by {' '.join(answer.model)}, and "
                f"{' '.join(model)} serves now: feedback is taken for its own answers only."
            )

    def judge(self, request_id: str, truth: frozenset[int], model: tuple[str, str]) -> Judgement:
        """Compare an answer with the truth (several indices where classes share a name).

        The indices are those of `model`'s classes; another bundle's answer is not compared.
        """
        answer = self._answers.get(request_id)
        if answer is None:
            raise UnknownFeedbackError(
                f"Request {request_id[:64]!r} is not remembered: it was never answered here, or is "
                f"older than the last {self._capacity} answers."
            )
        self.check_model(request_id, model)
        if answer.judged:
            raise RepeatedFeedbackError(
                f"Feedback for request {request_id[:64]!r} was already given."
            )
        answer.judged = True
        return Judgement(
            answer.resolution,
            answer.best[0] in truth,
            any(i in truth for i in answer.best),
            answer.expected_accuracy,
            answer.bundle,
        )


def resolve_truth(
    classes: tuple[str, ...], *, label: str | None, index: int | None
) -> frozenset[int]:
    """The class indices that feedback names; exactly one of label and index is given."""
    if (label is None) == (index is None):
        raise ParameterError("Give either a label or an index.", "label")
    if index is not None:
        if not 0 <= index < len(classes):
            raise ParameterError(
                f"index must be from 0 to {len(classes) - 1}, not {index}.", "index"
            )
        return frozenset({index})
    found = frozenset(i for i, name in enumerate(classes) if name == label)
    if not found:
        close = difflib.get_close_matches(str(label)[:80], classes, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ParameterError(f"No class is called {str(label)[:80]!r}{hint}", "label")
    return found
