"""What would be chosen now for an image that nobody has sent."""

from __future__ import annotations

from dataclasses import dataclass

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader
from service.request.budget import Budget
from service.request.terms import Terms
from service.scheduling.policy import Situation, Verdict, choose
from service.serving.deployment import Deployment
from service.serving.service import Service


@dataclass(frozen=True)
class Plan:
    """A choice without its consequences."""

    point: OperatingPoint
    verdict: str
    """`serve`, or why not: `late`, `impossible`, `overloaded`, `cold`, `inaccurate`."""
    reason: str
    predicted_ms: float
    expected_accuracy: float | None
    accuracy_source: str | None
    cached: bool


def plan(
    service: Service, deployment: Deployment, terms: Terms, header: ImageHeader, size: int
) -> Plan:
    """Ask the policy as for a request that arrives now; nothing is admitted or remembered."""
    now = service.clock()
    budget = Budget(now, terms.budget_ms, service.settings.patience_ms)
    listings = deployment.considered(terms)
    options = deployment.forecast.options(listings, header, size, budget, now)
    situation = Situation(
        allowed_ms=budget.allowed_ms,
        spent_ms=0.0,
        patience_ms=budget.patience_ms,
        has_budget=terms.budget_ms is not None,
        pinned=terms.resolution is not None,
        min_accuracy=terms.min_accuracy,
        on_miss=terms.on_miss,
        alone=service.admission.is_idle,
    )
    decision = choose(situation, options)
    option = decision.option
    listing = next(x for x, o in zip(listings, options, strict=True) if o is option)
    return Plan(
        option.point,
        Verdict(decision.verdict).value,
        decision.reason,
        option.total_ms,
        listing.accuracy,
        listing.accuracy_source,
        option.point in deployment.cache,
    )
