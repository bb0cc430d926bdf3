"""What would be chosen now for an image that nobody has sent."""

from __future__ import annotations

from dataclasses import dataclass

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader
from service.request.request import Request
from service.request.terms import Terms
from service.serving.bundles.deployment import Deployment
from service.serving.choosing import Image, considered, decode_times


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
    deployment: Deployment,
    terms: Terms,
    header: ImageHeader,
    size: int,
    *,
    now_ms: float,
    patience_ms: float,
) -> Plan:
    """Ask the policy as for a request that arrives now; nothing is admitted or remembered."""
    request = Request("plan", terms, now_ms, patience_ms)
    decision = deployment.scheduler.preview(
        request,
        now_ms,
        considered(deployment, terms),
        decode_times(deployment, [Image(header, size)]),
    )
    listing = decision.option.cost.listing
    return Plan(
        listing.point,
        decision.verdict.value,
        decision.reason,
        decision.option.total_ms,
        listing.accuracy,
        listing.accuracy_source,
        listing.point in deployment.cache,
    )
