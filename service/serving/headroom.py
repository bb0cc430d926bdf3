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
_HOLDS_MS, _IDLE_HOLDS_MS = 10.0, 100.0
"""How long a report holds: many answers a second share one. With no other request inside it
changes only as fast as the service learns, and a lone client should not wait for it."""
_RATE_MS = 1000.0


class HeadroomReport:
    """Makes a report at most every few milliseconds."""

    def __init__(self, admission: Admission, clock: Clock) -> None:
        self._admission = admission
        self._clock = clock
        self._made_ms = float("-inf")
        self._report: Headroom | None = None
        self._idle = False
        self._counted = (float("-inf"), 0)
        self._arrivals_per_s = 0.0

    def look(self, deployment: Deployment | None) -> Headroom | None:
        """The report as of now; None while nothing can be served."""
        now = self._clock()
        if deployment is None or not self._admission.ready or self._admission.draining:
            return None
        was_idle, self._idle = self._idle, not len(deployment.scheduler.schedule)
        holds_ms = _IDLE_HOLDS_MS if was_idle and self._idle else _HOLDS_MS
        if now - self._made_ms > holds_ms:
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
