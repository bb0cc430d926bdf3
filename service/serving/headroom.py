"""What this replica could promise to a request that came now."""

from __future__ import annotations

from san_core.preprocessing import ImageHeader
from service.fleet.headroom import Headroom
from service.runtime.clock import Clock
from service.scheduling.admission import Admission
from service.scheduling.reporting import reported
from service.serving.bundles.deployment import Deployment
from service.serving.choosing import Image, decode_times

_TYPICAL = ImageHeader("JPEG", 500, 375)
_TYPICAL_BYTES = 50_000
_HOLDS_MS = 5.0
"""How long a report holds: many answers a second share one."""
_RATE_MS = 1000.0


class HeadroomReport:
    """Makes a report at most every few milliseconds."""

    def __init__(self, admission: Admission, clock: Clock) -> None:
        self._admission = admission
        self._clock = clock
        self._made_ms = float("-inf")
        self._report: Headroom | None = None
        self._counted = (float("-inf"), 0)
        self._arrivals_per_s = 0.0

    def look(self, deployment: Deployment | None) -> Headroom | None:
        """The report as of now; None while nothing can be served."""
        now = self._clock()
        if deployment is None or not self._admission.ready or self._admission.draining:
            return None
        if now - self._made_ms > _HOLDS_MS:
            self._report, self._made_ms = self._make(deployment, now), now
        return self._report

    def _make(self, deployment: Deployment, now: float) -> Headroom:
        since, before = self._counted
        facts = self._admission.facts
        if now - since > _RATE_MS:
            came = facts.admitted + facts.refused
            if since > 0:
                self._arrivals_per_s = 1000 * (came - before) / (now - since)
            self._counted = now, came
        image = [Image(_TYPICAL, _TYPICAL_BYTES)]
        return reported(
            deployment.scheduler,
            now,
            decode_times(deployment, image),
            self._arrivals_per_s,
        )
