"""The evaluation of a bundle: the paper's tables about one network, as facts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor

from san_core.bundle import Bundle
from san_core.errors import BundleError
from san_core.frontier import Precision
from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import quantised_resolutions
from san_core.mode import Mode
from san_core.network.calibration import exact_statistics
from san_core.network.cost import ratios
from san_core.network.network_config import MetaLearnerKind
from san_core.resolution import Provenance, nearest, provenance
from training.data.folder import ImageFolder
from training.evaluation.accuracy import Score
from training.evaluation.analysis import batch_norm_means, miss_and_hit
from training.evaluation.probes import (
    AnyProbe,
    Calibrated,
    Compiled,
    Measurement,
    Probe,
    Progress,
    Rounded,
    Run,
    Uncalibrated,
    measure,
    serving_probe,
    table_probes,
)
from training.runtime.distributed import Group

Cells = dict[tuple[int, int], Score]
"""By (row, test resolution)."""
Images = Callable[[int], Iterable[Tensor]]
"""Batches of calibration images at a resolution."""

Engine = Callable[[int, Mode, Precision], Run | None]
"""Prepares the network served at (resolution, mode) in a precision; None if it cannot."""

_AT_ONCE = 12
"""How many networks are in memory together; images are decoded once for all of them."""

BEFORE, AFTER = "ideal before calibration", "ideal after calibration"


@dataclass(frozen=True)
class Entry:
    """The accuracy that is served at (resolution, mode)."""

    resolution: int
    mode: Mode
    score: Score
    calibrated: bool
    """Whether `ideal` had statistics of its own at this resolution."""
    precision: Precision = "float"

    def to_json(self) -> dict[str, Any]:
        """Return what the JSON file says."""
        return {
            "resolution": self.resolution,
            "mode": self.mode.value,
            "precision": self.precision,
            "top1": self.score.top1,
            "top5": self.score.top5,
            "n": self.score.n,
            "top1_interval": self.score.interval1,
            "top5_interval": self.score.interval5,
            "calibrated": self.calibrated,
            "calibration_error": self.score.calibration_error,
        }


@dataclass
class Evaluation:
    """All that was measured about one bundle."""

    name: str
    trained: tuple[int, ...]
    tests: tuple[int, ...]
    entries: list[Entry]
    rows: Cells = field(default_factory=dict)
    """Table 1's shape."""
    panels: dict[str, Cells] = field(default_factory=dict)
    """Table 2's shape: ideal inference before and after calibration at interpolated resolutions."""
    miss_hit: list[list[float]] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    batch_norms: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def shaded(self) -> dict[int, int]:
        """By test resolution, the row that the paper shades: S(T)."""
        return {test: nearest(test, self.trained) for test in self.tests}

    def to_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {
            "bundle": self.name,
            "trained": list(self.trained),
            "entries": [entry.to_json() for entry in self.entries],
            "rows": _cells_to_json(self.rows),
            "panels": {name: _cells_to_json(cells) for name, cells in self.panels.items()},
            "miss_hit": self.miss_hit,
            "ratios": self.ratios,
            "batch_norms": self.batch_norms,
        }


def _cells_to_json(cells: Cells) -> list[dict[str, Any]]:
    return [
        {"row": row, "resolution": test, "top1": s.top1, "top5": s.top5, "n": s.n}
        for (row, test), s in cells.items()
    ]


def evaluate(
    bundle: Bundle,
    folder: ImageFolder,
    tests: Sequence[int],
    modes: Sequence[Mode],
    group: Group,
    *,
    precisions: Sequence[Precision] = ("float",),
    full: bool = False,
    images: Images | None = None,
    batch_size: int = 64,
    workers: int = -1,
    max_unreadable: int = 100,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Evaluation:
    """Measure every served network; with `full` also the tables that the paper has about one.

    `images` are for the calibrated panel of a full evaluation, which is left out without them.
    What `engine` can run is measured as it runs it, the rest by torch.
    """
    network, trained = bundle.network, bundle.network.resolutions
    served: dict[tuple[int, Mode, Precision], AnyProbe] = {}
    folded = _folded(bundle) if "int8" in precisions else None
    rounded: dict[Probe, Rounded] = {}
    for test, mode in product(tests, modes):
        probe = serving_probe(test, mode, trained)
        if "float" in precisions:
            served[test, mode, "float"] = probe
        if folded is not None:
            rounded.setdefault(probe, Rounded(probe, bundle.extras, folded))
            served[test, mode, "int8"] = rounded[probe]
    probes: list[AnyProbe] = list(served.values())
    panels: dict[str, list[AnyProbe]] = {}
    if full:
        probes += table_probes(trained, tests) + [Probe(side, side) for side in trained]
    if full and Mode.IDEAL in modes:
        between = [t for t in tests if provenance(t, trained) is Provenance.INTERPOLATED]
        panels[BEFORE] = [Uncalibrated(t, row) for row in trained for t in between]
        if images is not None:
            panels[AFTER] = [
                _calibrated(bundle, t, row, images) for row in trained for t in between
            ]
        probes += [probe for panel in panels.values() for probe in panel]
    measuring = partial(
        measure,
        network,
        folder=folder,
        preprocessing=bundle.manifest.preprocessing,
        group=group,
        batch_size=batch_size,
        workers=workers,
        max_unreadable=max_unreadable,
    )
    if engine is None or full:
        measured = measuring(probes, progress=progress)
        scores = measured.scores
    else:
        scores = _by_engine(served, engine, measuring, progress)
    calibrated = network.calibrated_resolutions
    found = Evaluation(
        name=bundle.manifest.name,
        trained=trained,
        tests=tuple(sorted(set(tests), reverse=True)),
        entries=[
            Entry(t, m, scores[probe], m is Mode.IDEAL and t in calibrated, precision)
            for (t, m, precision), probe in served.items()
        ],
    )
    if full:
        _fill(found, bundle, measured, panels)
    return found


def _by_engine(
    served: Mapping[tuple[int, Mode, Precision], AnyProbe],
    engine: Engine,
    measuring: Callable[..., Measurement],
    progress: Progress | None,
) -> dict[AnyProbe, Score]:
    """Score the served networks, a few at a time, on the engine where it can run them."""
    scores: dict[AnyProbe, Score] = {}
    points = list({probe: point for point, probe in served.items()}.items())
    starts = range(0, len(points), _AT_ONCE)
    for round_, start in enumerate(starts):
        some = {
            probe: _compiled(probe, engine, *point) for probe, point in points[start:][:_AT_ONCE]
        }
        told = progress and partial(_in_rounds, progress, round_, len(starts))
        found = measuring(list(some.values()), progress=told).scores
        scores |= {probe: found[as_run] for probe, as_run in some.items()}
    return scores


def _compiled(
    probe: AnyProbe, engine: Engine, resolution: int, mode: Mode, precision: Precision
) -> AnyProbe:
    run = engine(resolution, mode, precision)
    return probe if run is None else Compiled(probe.test, probe.row, run)


def _in_rounds(progress: Progress, round_: int, rounds: int, done: int, of: int) -> None:
    progress(round_ * of + done, rounds * of)


def _folded(bundle: Bundle) -> FoldedArchitecture:
    missing = set(bundle.network.resolutions) - set(quantised_resolutions(bundle.extras))
    if missing:
        raise BundleError(
            f"{bundle.manifest.name} has no int8 ranges for {max(missing)}: see 'san quantize'."
        )
    return FoldedArchitecture(bundle.network.skeleton)


def _calibrated(bundle: Bundle, test: int, row: int, images: Images) -> Calibrated:
    state = Uncalibrated(test, row).state(bundle.network)
    return Calibrated(test, row, exact_statistics(bundle.network, state, images(test)))


def _fill(
    found: Evaluation, bundle: Bundle, measured: Measurement, panels: dict[str, list[AnyProbe]]
) -> None:
    network, scores = bundle.network, measured.scores
    found.rows = {
        (probe.row, probe.test): scores[probe] for probe in table_probes(found.trained, found.tests)
    }
    found.panels = {
        name: {(probe.row, probe.test): scores[probe] for probe in panel}
        for name, panel in panels.items()
    }
    diagonal = [measured.hits[Probe(side, side)] for side in found.trained]
    found.miss_hit = miss_and_hit(diagonal, measured.read)
    if network.config.meta_learner is MetaLearnerKind.LINEAR:
        found.ratios = ratios(network)
    if not network.config.shared_batch_norm:
        found.batch_norms = batch_norm_means(network)
