"""The sentences that tell a client what was decided, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from san_core.frontier import OperatingPoint
from service.request.request import Request
from service.request.terms import Terms

if TYPE_CHECKING:
    from service.scheduling.deciding import Option

HOPELESS = 0.05
"""A point that is in time less often than this is not called a chance."""


def name(point: OperatingPoint) -> str:
    """A point in words."""
    precision = "" if point.precision == "float" else f", {point.precision}"
    return f"{point.resolution} px ({point.mode}{precision})"


def _name(option: Option) -> str:
    return name(option.cost.listing.point)


def _budget(request: Request, now_ms: float) -> str:
    if request.terms.budget_ms is None:
        return f"the {request.allowed_ms:g} ms that requests without a budget may take"
    spent = request.spent_ms(now_ms)
    gone = f" ({spent:.1f} ms already gone)" if spent >= 1 else ""
    return f"{request.allowed_ms:g} ms{gone}"


def chosen(
    request: Request,
    options: Sequence[Option],
    option: Option,
    unloaded: Option | None,
    price: float,
    now_ms: float,
) -> str:
    """Why a point was chosen when the request came in."""
    left = f"{request.left_ms(now_ms):.1f} ms left"
    took = f"{option.total_ms:.1f} ms"
    if unloaded is not None:
        return lowered(unloaded.cost.listing.point, option.cost.listing.point, price)
    if request.terms.resolution is not None:
        return f"The client pinned {_name(option)} (predicted {took})."
    if request.terms.budget_ms is None:
        return (
            f"No budget was given, so the most accurate point: {_name(option)} (predicted {took})."
        )
    better = [other for other in options if other.accuracy > option.accuracy]
    if not better:
        return f"The most accurate point, {_name(option)}, fits (predicted {took} of {left})."
    following = min(better, key=lambda other: other.total_ms)
    cold = " with its weights still to be generated" if following.cold_ms > 0 else ""
    return (
        f"{_name(option)} buys the most accuracy in time (predicted {took} of {left}); the next, "
        f"{_name(following)}{cold}, would take {following.total_ms:.1f} ms and be in time in "
        f"{100 * following.in_time:.0f} of 100 cases."
    )


def lowered(wanted: OperatingPoint, given: OperatingPoint, price: float) -> str:
    """Why load gave a request less than it could have had alone."""
    if price <= 0:
        return (
            f"Load lowered the choice from {name(wanted)} to {name(given)}: behind the requests "
            f"that go first, {name(wanted)} might be late."
        )
    return (
        f"Load lowered the choice from {name(wanted)} to {name(given)}: a millisecond of the "
        f"engine is worth {100 * price:.2f} points of accuracy to others."
    )


def inaccurate(terms: Terms, best: Option) -> str:
    """No point is accurate enough."""
    return (
        f"No point reaches an accuracy of {terms.min_accuracy}; the best, {_name(best)}, has "
        f"{best.accuracy:.3f}."
    )


def overloaded(request: Request, fastest: Option, now_ms: float) -> str:
    """Only the load is in the way."""
    waiting = max(0.0, fastest.total_ms - fastest.idle_ms)
    return (
        f"The load leaves no point that fits {_budget(request, now_ms)}: the fastest, "
        f"{_name(fastest)}, would take {fastest.total_ms:.1f} ms, {waiting:.1f} of them waiting."
    )


def cold(request: Request, option: Option) -> str:
    """It fits once its weights are there."""
    return (
        f"The weights of {_name(option)} are being generated; once ready it fits "
        f"{request.allowed_ms:g} ms."
    )


def impossible(request: Request, fastest: Option, now_ms: float) -> str:
    """No point fits this host."""
    return (
        f"No point fits {_budget(request, now_ms)}: the fastest, {_name(fastest)}, takes "
        f"{fastest.idle_ms:.1f} ms on this host."
    )


def late(request: Request, option: Option, now_ms: float) -> str:
    """It is answered although it will hardly be in time."""
    if request.terms.budget_ms is None:
        pinned = "The client pinned" if request.terms.resolution else "No budget was given:"
        return f"{pinned} {_name(option)} (predicted {option.total_ms:.1f} ms)."
    if option.in_time <= HOPELESS:
        return (
            f"No point meets {_budget(request, now_ms)}: {_name(option)} is the fastest (predicted "
            f"{option.total_ms:.1f} ms)."
        )
    return (
        f"No point meets {_budget(request, now_ms)} reliably: {_name(option)} is in time in "
        f"{100 * option.in_time:.0f} of 100 cases (predicted {option.total_ms:.1f} ms)."
    )
