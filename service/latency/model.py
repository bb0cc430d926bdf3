"""How long things take on this host: medians, measured at start, corrected by every request.

A prediction is a measured time multiplied by a learnt *pace*, which all points share: when a
neighbour takes half the machine, a point that no request has used lately slows down with the
others, and recovers with them. Runs with nobody else inside and runs under load have a pace each.
How far whole times spread around their predictions is not known here but to `Spread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from san_core.preprocessing import ImageHeader
from service.latency.curves import Curve, Measurements, Shape, interpolated, up_to
from service.latency.decode_cost import DecodeCost, DecodeTimes, DecodeWork, bucket
from service.latency.quantiles import Factor


@dataclass(frozen=True)
class Assumed:
    """What holds until the first request says otherwise."""

    overhead_ms: float = 0.4
    """Of a request, outside of every named stage: one client, two cores, `benchmarks.overhead`."""
    handover_ms: float = 0.5
    """From the end of one batch to the start of the next while requests wait."""
    decode_ms: float = 1.0
    """To decode an image before there was one: a JPEG of 500 x 375 (`benchmarks.decode`)."""
    cycle: float = 1.25
    """How much longer cycles of a crowded service take than engine and decoders account for: two
    cores that also run the event loop and the client (`benchmarks.tournament --real`)."""
    build_ms: float = 200.0
    """To make a cold point ready, if none was ever built here."""
    own_gain: float = 0.03
    """How far one run moves what is known of its point alone: slower than the shared pace."""
    least_own: float = 0.7
    """No point counts as faster than this part of its measured time: medians of a quiet host."""
    drift: float = 1.5
    """A pace beyond this, or below its inverse, is worth a warning."""
    resize_ms: float = 0.2
    """To bring one decoded image to a resolution other than it was decoded for, at dispatch: 500 x
    375 pixels to 64 to 224 px take 0.1 to 0.2 ms (`benchmarks.decode`)."""


ASSUMED = Assumed()


_ORDINARY_MEGAPIXELS = 2.5
"""Larger JPEGs have a thread of their own, which yields to everything else."""


class LatencyModel:
    """Predicts the median of every part of a request's time."""

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self._alone = Factor()
        self._busy = Factor()
        self._own: dict[Shape, Factor] = {}
        self._decode: dict[tuple[str, int], Factor] = {}
        self._busy_decode = Factor()
        self._overhead = {True: Factor(ASSUMED.overhead_ms), False: Factor(ASSUMED.overhead_ms)}
        """Alone, and under load."""
        self._handover = Factor(ASSUMED.handover_ms)
        self._build: dict[str, float] = dict(measurements.build_ms)
        self._estimates: dict[Shape, Curve] = {}

    def curve(self, shape: Shape) -> Curve:
        """The base times of a shape; scaled by pixel count from its neighbour if never measured."""
        known = self.measurements.curves.get(shape) or self._estimates.get(shape)
        if known is None:
            if len(self._estimates) > 256:
                self._estimates.clear()
            known = self._estimates[shape] = self._estimate(shape)
        return known

    def update(self, curves: Mapping[Shape, Curve]) -> None:
        """Take over newly measured times."""
        self.measurements.curves.update(curves)
        self._estimates.clear()
        # What was learnt was relative to the old ones.
        self._own.clear()
        self._alone, self._busy = Factor(), Factor()

    def _estimate(self, shape: Shape) -> Curve:
        return interpolated(self.measurements.curves, shape)

    def base_ms(self, shape: Shape, batch: int) -> float:
        """A run's time as measured and learnt for this shape, at pace 1."""
        return self.curve(shape).at(batch) * self._own_factor(shape)

    def bases_ms(self, shape: Shape, most: int) -> list[float]:
        """The same for batches of 1, 2, … images."""
        factor = self._own_factor(shape)
        return [factor * ms for ms in up_to(self.curve(shape), most)]

    def _own_factor(self, shape: Shape) -> float:
        own = self._own.get(shape)
        return 1.0 if own is None else own.value

    def forward_ms(self, shape: Shape, batch: int = 1) -> float:
        """A run's time with nobody else inside."""
        return self.base_ms(shape, batch) * self._alone.value

    def decode_ms(self, work: DecodeWork) -> float:
        """The time decoding takes with nobody else inside."""
        factor = self._decode.get(work.bucket)
        return self._decode_cost(work.format).at(work) * (1.0 if factor is None else factor.value)

    def decode_times(self, header: ImageHeader, size: int) -> DecodeTimes:
        """The same for an image of `size` bytes at every scale."""
        factor = self._decode.get(bucket(header.format, header.width * header.height / 1e6))
        cost = self._decode_cost(header.format)
        return cost.times(header, size, 1.0 if factor is None else factor.value)

    @property
    def decode_pace(self) -> float:
        """How much longer decoding takes under load."""
        return self._busy_decode.value

    def build_ms(self, precision: str) -> float:
        """How long it takes until a cold point's weights are ready."""
        return self._build.get(precision, max(self._build.values(), default=ASSUMED.build_ms))

    @property
    def busy_pace(self) -> float:
        """How much longer runs take under load than measured."""
        return self._busy.value

    def overhead_ms(self, *, alone: bool = True) -> float:
        """What a request takes outside of every named stage, from the decision to its answer."""
        return self._overhead[alone].value

    @property
    def handover_ms(self) -> float:
        """From the end of one batch to the start of the next while requests wait."""
        return self._handover.value

    @property
    def drift(self) -> float:
        """Recent times over what was measured at start: 1 means nothing changed."""
        return self._alone.value

    @property
    def has_drifted(self) -> bool:
        """Whether this host is no longer what it was when it was measured."""
        return not 1 / ASSUMED.drift <= self.drift <= ASSUMED.drift

    def observe_forward(
        self, shape: Shape, batch: int, took_ms: float, *, alone: bool, beside_ms: float = 0.0
    ) -> None:
        """Learn from a run; `beside_ms` is what decoding takes from the same cores meanwhile."""
        pace = self._alone if alone else self._busy
        pace.learn(took_ms / (self.base_ms(shape, batch) + beside_ms))
        if alone:
            self._busy.fade(pace.value)
            self._handover.fade(ASSUMED.handover_ms)
        own = self._own.get(shape)
        if own is None:
            own = self._own[shape] = Factor(gain=ASSUMED.own_gain)
        rest = took_ms / pace.value - beside_ms  # of a small resolution little is left, or nothing
        own.learn(max(rest / self.curve(shape).at(batch), ASSUMED.least_own))

    def observe_decode(self, work: DecodeWork, took_ms: float, *, alone: bool) -> None:
        """Learn from an image that was decoded: about its kind, and about no other.

        How much load slows decoding is learnt from ordinary photographs only. Whatever else is
        decoded takes its time elsewhere, and a client could choose it.
        """
        if not alone:
            if work.format == "JPEG" and work.source_megapixels <= _ORDINARY_MEGAPIXELS:
                self._busy_decode.learn(took_ms / max(self.decode_ms(work), 0.01))
            return
        self._busy_decode.fade(1.0)
        base = self._decode_cost(work.format).at(work)
        if base > 0:
            self._decode.setdefault(work.bucket, Factor()).learn(took_ms / base)

    def observe_build(self, precision: str, took_ms: float) -> None:
        """Learn from a network that was made ready: quickly upwards, slowly downwards."""
        known = self._build.get(precision, took_ms)
        share = 0.5 if took_ms > known else 0.1
        self._build[precision] = known + share * (took_ms - known)

    def observe_overhead(self, took_ms: float, *, alone: bool = True) -> None:
        """Learn what is left when the named stages are taken away."""
        self._overhead[alone].learn(max(took_ms, 0.05))
        if alone:
            self._overhead[False].fade(self._overhead[True].value)

    def observe_handover(self, took_ms: float) -> None:
        """Learn from two batches that followed each other while requests waited."""
        self._handover.learn(max(took_ms, 0.01))

    def _decode_cost(self, image_format: str) -> DecodeCost:
        costs = self.measurements.decode
        return costs.get(image_format) or costs.get("PNG") or DecodeCost()
