"""What is learnt from finished requests: sums, samples, feedback, the log, the trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.observability.ledger import Ledger
from service.replay.recording import Recorder
from service.request.answer import Answer, image_ids
from service.request.request import Request
from service.serving.pipeline import Received
from service.serving.quality.agreement import Agreement
from service.serving.quality.feedback import FeedbackStore, Judgement, Remembered
from service.serving.quality.idle_sampler import Sample
from service.serving.quality.rollout import Rollout


@dataclass(frozen=True)
class Observer:
    """Called once per request, whatever became of it."""

    ledger: Ledger
    feedback: FeedbackStore
    agreement: Agreement
    rollout: Rollout
    recorder: Recorder | None
    tellers: list[Callable[[Request], None]]
    """Those who tell others: a log, a trace."""

    def __call__(self, record: Request, answer: Answer | None, image: Received | None) -> None:
        """Learn from one request."""
        self.ledger.observe(record)
        self.rollout.observe(record)
        if answer is not None and record.point is not None:
            self._remember(record, answer)
            if isinstance(image, bytes):
                self._offer(record, answer, image)
        if self.recorder is not None:
            self.recorder(record)
        for tell in self.tellers:
            tell(record)

    def judge(self, request_id: str, truth: frozenset[int], model: tuple[str, str]) -> Judgement:
        """Compare an answer with the truth, and count it.

        The truth is in indices of the classes of `model`: a bundle's name and version.
        """
        judged = self.feedback.judge(request_id, truth, model)
        self.ledger.observe_feedback(
            judged.resolution,
            judged.expected_accuracy,
            first=judged.correct,
            top5=judged.in_top5,
        )
        self.rollout.observe_feedback(
            judged.bundle, right=judged.correct, expected=judged.expected_accuracy
        )
        return judged

    def close(self) -> None:
        """Nothing is recorded any more."""
        if self.recorder is not None:
            self.recorder.close()

    def _remember(self, record: Request, answer: Answer) -> None:
        """Keep what was answered, for feedback that comes later."""
        assert record.point is not None
        names = image_ids(record.request_id, len(answer.results))
        for name, result in zip(names, answer.results, strict=True):
            self.feedback.remember(
                name,
                Remembered(
                    record.point.resolution,
                    (record.model, record.model_version),
                    tuple(p.index for p in result.predictions[:5]),
                    record.expected_accuracy,
                    bundle=record.bundle,
                ),
            )

    def _offer(self, record: Request, answer: Answer, image: bytes) -> None:
        """Perhaps have the picture run again when nobody waits."""
        assert record.point is not None
        sample = Sample(
            image,
            record.point.resolution,
            answer.predictions[0].index,
            record.bundle,
            record.terms.budget_ms,
        )
        self.agreement.offer(sample)
        if self.rollout.other is not None:
            self.rollout.offer(sample)
