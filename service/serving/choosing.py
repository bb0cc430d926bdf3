"""Acting on the policy's verdicts: who is turned away, who is served, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from san_core.preprocessing import ImageHeader
from service.errors import (
    ImpossibleBudgetError,
    NotReadyError,
    OverloadedError,
    ParameterError,
)
from service.request.budget import Budget
from service.request.record import RequestRecord
from service.request.terms import OnMiss, Terms
from service.runtime.clock import Clock
from service.scheduling.admission import Admission
from service.scheduling.load import Load
from service.scheduling.policy import Decision, Situation, Verdict, choose
from service.serving.deployment import Deployment


@dataclass(frozen=True)
class Limits:
    """What the service allows, whatever the client says."""

    patience_ms: float
    max_resolution: int
    backlog: int
    """How many requests may be inside before those that are late are dropped."""


@dataclass(slots=True)
class Choice:
    """What the policy decided for a request that is served, and when it is due."""

    decision: Decision
    due_ms: float


class Chooser:
    """Asks the policy, and does what it says."""

    def __init__(self, admission: Admission, load: Load, clock: Clock, limits: Limits) -> None:
        self._admission = admission
        self._load = load
        self._clock = clock
        self._limits = limits

    def admit(self, deployment: Deployment | None, budget: Budget, terms: Terms) -> Deployment:
        """Turn away whom the load makes late before they cost anything."""
        self._admission.check()
        if deployment is None:
            raise NotReadyError("No bundle is loaded yet; try again soon.")
        if terms.resolution is not None and terms.resolution > self._limits.max_resolution:
            raise ParameterError(
                f"resolution may be at most {self._limits.max_resolution} here, "
                f"not {terms.resolution}.",
                "resolution",
            )
        now = self._clock()
        hopeless = deployment.forecast.hopeless_ms(deployment.frontier[0], budget, now)
        # Who finds nobody inside waits for the service's own work at most.
        if hopeless is not None and not self._admission.is_idle:
            self._load.turned_away(now)
            raise OverloadedError(
                f"The load leaves no room for {budget.allowed_ms:g} ms: even the fastest point "
                f"would take {hopeless:.0f} ms.",
                self._load.drain_ms(now),
            )
        return deployment

    def choose(
        self,
        deployment: Deployment,
        header: ImageHeader | None,
        size: int,
        budget: Budget,
        terms: Terms,
        record: RequestRecord,
    ) -> Choice:
        """Ask the policy for an image of `size` bytes, and act on its verdict."""
        now = self._clock()
        record.model = deployment.manifest.name
        record.model_version = deployment.manifest.version
        listings = deployment.considered(terms)
        if terms.min_accuracy is not None and listings[0].accuracy is None:
            raise ParameterError(
                "The bundle served here was never evaluated, so no accuracy can be asked of it; "
                "leave min_accuracy out.",
                "min_accuracy",
            )
        options = deployment.forecast.options(listings, header, size, budget, now)
        spent = budget.spent_ms(now)
        situation = Situation(
            allowed_ms=budget.allowed_ms,
            spent_ms=spent,
            patience_ms=budget.patience_ms,
            has_budget=terms.budget_ms is not None,
            pinned=terms.resolution is not None,
            min_accuracy=terms.min_accuracy,
            on_miss=terms.on_miss,
            alone=self._admission.inside == 1,
        )
        decision = choose(situation, options)
        option = decision.option
        accuracy = next(x.accuracy for x, o in zip(listings, options, strict=True) if o is option)
        record.reason = decision.reason
        if decision.verdict is Verdict.INACCURATE:
            raise ParameterError(decision.reason, "min_accuracy")
        if decision.verdict is Verdict.IMPOSSIBLE:
            raise ImpossibleBudgetError(decision.reason, spent + option.warm_ms, accuracy)
        if decision.verdict is Verdict.COLD:
            deployment.request(option.point)
            raise NotReadyError(decision.reason, option.cold_ms)
        if decision.verdict is Verdict.OVERLOADED:
            self._load.turned_away(now)
            raise OverloadedError(decision.reason, self._load.drain_ms(now))
        if decision.held_up is not None:
            deployment.restore(decision.held_up)
        record.point = option.point
        record.predicted_ms = spent + option.total_ms
        record.expected_accuracy = accuracy
        if accuracy is not None:
            record.given_up = decision.given_up
        # Who cannot be in time is due when predicted: it must not push aside who can.
        due = budget.deadline_ms if decision.verdict is Verdict.SERVE else now + option.total_ms
        return Choice(decision, due)

    def late_is_wanted(self, terms: Terms, choice: Choice) -> bool:
        """Whether to go on with a request whose deadline has passed in the queue.

        Behind a backlog, or while others are refused, it ends there whatever it asked for: working
        on what is late already makes others late. Who was late from the start goes on, behind all
        who can be in time, but not for ever; who named no budget is only ever ended for others.
        """
        if terms.on_miss is OnMiss.REFUSE:
            return False
        now, load = self._clock(), self._load
        crowded = len(load) > self._limits.backlog or load.is_refusing(now)
        if crowded and choice.decision.verdict is Verdict.SERVE:
            return False
        in_no_hurry = terms.budget_ms is None and not crowded
        return in_no_hurry or now <= choice.due_ms + self._limits.patience_ms
