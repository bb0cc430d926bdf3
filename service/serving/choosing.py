"""Acting on the scheduler's verdicts: a request goes on, perhaps late, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from san_core.preprocessing import ImageHeader
from service.errors import ImpossibleBudgetError, NotReadyError, OverloadedError, ParameterError
from service.latency.catalogue import Listing
from service.request.request import Request
from service.request.terms import Terms
from service.scheduling.admission import Admission
from service.scheduling.deciding import Verdict
from service.serving.bundles.deployment import Deployment


@dataclass(frozen=True)
class Limits:
    """What the service allows, whatever the client says."""

    patience_ms: float
    max_resolution: int


@dataclass(frozen=True, slots=True)
class Image:
    """What is known of an image before it is decoded; no header: it needs no decoding."""

    header: ImageHeader | None
    bytes: int


def admit(
    request: Request,
    deployment: Deployment | None,
    admission: Admission,
    limits: Limits,
    now_ms: float,
) -> Deployment:
    """Refuse what the load makes late before a byte of its body is read."""
    admission.check()
    if deployment is None:
        raise admission.not_ready()
    resolution = request.terms.resolution
    if resolution is not None and resolution > limits.max_resolution:
        raise ParameterError(
            f"resolution may be at most {limits.max_resolution} here, not {resolution}.",
            "resolution",
        )
    refusal = deployment.scheduler.admit(request, now_ms)
    if refusal is not None:
        raise OverloadedError(refusal, deployment.scheduler.schedule.drain_ms(now_ms))
    return deployment


def considered(deployment: Deployment, terms: Terms) -> Sequence[Listing]:
    """The points that the client's terms leave; raise if they cannot be had here."""
    if terms.precision not in (None, *deployment.catalogue.precisions):
        raise ParameterError(
            f"precision {terms.precision} is not available: the bundle and the engine served "
            f"here have {', '.join(deployment.catalogue.precisions)}.",
            "precision",
        )
    listings = deployment.considered(terms)
    if terms.min_accuracy is not None and all(x.accuracy is None for x in listings):
        raise ParameterError(
            "No accuracy was measured for these points, so none can be asked of them; "
            "leave min_accuracy out.",
            "min_accuracy",
        )
    return listings


def decide(request: Request, deployment: Deployment, images: list[Image], now_ms: float) -> None:
    """Ask the scheduler for a request whose body is there; raise if it is not served."""
    terms, scheduler = request.terms, deployment.scheduler
    request.model = deployment.manifest.name
    request.model_version = deployment.manifest.version
    request.bundle = deployment.sha256
    first = images[0]
    listings = considered(deployment, terms)
    if listings is deployment.frontier:
        allowed = None if terms.budget_ms is None else terms.budget_ms - request.upload_ms
        request.idle = deployment.idle_host.look(
            first.header, first.bytes, allowed, terms.min_accuracy
        )
    decision = scheduler.decide(request, now_ms, listings, decode_times(deployment, images))
    option, verdict = decision.option, decision.verdict
    listing, reason = option.cost.listing, decision.reason
    if decision.held_up is not None:
        deployment.restore(decision.held_up)
    if verdict in (Verdict.SERVE, Verdict.LATE):
        return
    request.reason = reason
    if verdict is Verdict.INACCURATE:
        raise ParameterError(reason, "min_accuracy")
    if verdict is Verdict.IMPOSSIBLE:
        smallest = request.spent_ms(now_ms) + option.idle_ms * scheduler.whole.alone.bound
        raise ImpossibleBudgetError(reason, smallest, listing.accuracy)
    if verdict is Verdict.COLD:
        deployment.request(listing.point)
        raise NotReadyError(reason, option.cold_ms)
    raise OverloadedError(reason, scheduler.schedule.drain_ms(now_ms))


def decode_times(deployment: Deployment, images: list[Image]) -> Callable[[int], float]:
    """Predicted time to decode all images of a request, by resolution."""
    least_side, model = deployment.least_side, deployment.model
    times = [model.decode_times(x.header, x.bytes) for x in images if x.header is not None]
    if len(times) == 1:
        only = times[0]
        return lambda resolution: only.at(least_side(resolution))
    return lambda resolution: sum(each.at(least_side(resolution)) for each in times)
