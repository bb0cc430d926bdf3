"""Measuring accuracy: many probes of one network, every image decoded once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import Int8Simulation, ranges_for
from san_core.mode import Mode
from san_core.network.private_batch_norm import by_layer
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from san_core.resolution import nearest
from training.data.folder import ImageFolder
from training.data.loader import Normaliser, centre_batches
from training.evaluation.accuracy import CALIBRATION_BINS, Score, calibration_error
from training.runtime.distributed import Group

Progress = Callable[[int, int], None]
"""Called with images done (in this process) and images in all of its share."""

_TOP = 5


@dataclass(frozen=True)
class Probe:
    """A main network tested at a resolution."""

    test: int
    """Side of the images."""
    row: int
    """Resolution for which the main network is generated."""
    mode: Mode = Mode.PROXY

    def state(self, network: ScaleAdaptiveNetwork) -> dict[str, Tensor]:
        """Generate the main network."""
        return network.generate(self.row, self.mode)


@dataclass(frozen=True)
class Uncalibrated:
    """Ideal inference before calibration: encoding of the test resolution, batch norm of a row.

    The left panel of Table 2, where any row may meet any test resolution.
    """

    test: int
    row: int

    def state(self, network: ScaleAdaptiveNetwork) -> dict[str, Tensor]:
        """Generate the main network."""
        state = network.generate(self.row, Mode.PROXY)
        kernels = network.generate(self.test, Mode.IDEAL)
        return state | {f"{k.name}.weight": kernels[f"{k.name}.weight"] for k in network.kernels}


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Ideal inference after calibration of a row's statistics at the test resolution.

    The middle panel of Table 2. For the nearest row it is what a calibrated bundle serves.
    """

    test: int
    row: int
    statistics: dict[str, Tensor]
    """Flat `running_mean` and `running_var`."""

    def state(self, network: ScaleAdaptiveNetwork) -> dict[str, Tensor]:
        """Generate the main network."""
        state = Uncalibrated(self.test, self.row).state(network)
        return state | by_layer(self.statistics, network.norms)


@dataclass(frozen=True, eq=False)
class Rounded:
    """What is served at (test, mode) in int8, simulated."""

    probe: Probe
    extras: Mapping[str, Tensor]
    """The bundle's, with the ranges."""
    folded: FoldedArchitecture

    @property
    def test(self) -> int:
        """Side of the images."""
        return self.probe.test

    @property
    def row(self) -> int:
        """Resolution for which the main network is generated."""
        return self.probe.row

    def logits(self, network: ScaleAdaptiveNetwork, images: Tensor) -> Tensor:
        """Run the main network with the rounding of int8."""
        tensors = self.folded.fold(self.probe.state(network))
        ranges = ranges_for(network, self.extras, self.probe.row, self.probe.mode)
        return Int8Simulation(self.folded)(images, tensors, ranges)


Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Pixels [n, T, T, 3] as they are decoded to logits [n, classes]."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """What is served at (test, mode) in a precision, run by an engine instead of torch."""

    test: int
    row: int
    run: Run


AnyProbe = Probe | Uncalibrated | Calibrated | Rounded | Compiled


def _logits(
    probe: Probe | Uncalibrated | Calibrated | Rounded,
    network: ScaleAdaptiveNetwork,
    images: Tensor,
) -> Tensor:
    if isinstance(probe, Rounded):
        return probe.logits(network, images)
    logits: Tensor = functional_call(network.skeleton, probe.state(network), (images,))
    return logits


@dataclass
class Measurement:
    """What probes scored, and which images each of them got right."""

    scores: dict[AnyProbe, Score]
    hits: dict[AnyProbe, Tensor]
    """By probe: bool [images], in the folder's order; unreadable ones count as missed."""
    read: Tensor
    """bool [images]: which images could be read."""


@torch.inference_mode()
def measure(
    network: ScaleAdaptiveNetwork,
    probes: Iterable[AnyProbe],
    folder: ImageFolder,
    preprocessing: Preprocessing,
    group: Group,
    *,
    batch_size: int = 64,
    workers: int = -1,
    max_unreadable: int = 100,
    progress: Progress | None = None,
) -> Measurement:
    """Score all probes; the processes share the images, and each image counts once."""
    wanted = sorted(set(probes), key=lambda p: (-p.test, -p.row))
    resolutions = sorted({p.test for p in wanted}, reverse=True)
    by_torch = {p.test for p in wanted if not isinstance(p, Compiled)}
    images, device = len(folder), group.device
    first = torch.zeros(len(wanted), images, dtype=torch.uint8, device=device)
    among = torch.zeros(len(wanted), dtype=torch.long, device=device)
    read = torch.zeros(images, dtype=torch.uint8, device=device)
    bins = torch.zeros(len(wanted), CALIBRATION_BINS, 3, dtype=torch.double, device=device)
    normalise = Normaliser(preprocessing, device)
    was_training = network.training
    network.eval()
    done = 0
    try:
        for raw in centre_batches(
            folder,
            resolutions,
            preprocessing,
            group,
            batch_size=batch_size,
            workers=workers,
            max_unreadable=max_unreadable,
        ):
            labels = raw.labels.to(device)
            where = torch.tensor(raw.indices, device=device)
            read[where] = 1
            inputs = {side: normalise(raw.pixels[side]) for side in by_torch}
            for position, probe in enumerate(wanted):
                if isinstance(probe, Compiled):
                    logits = torch.from_numpy(probe.run(raw.pixels[probe.test].numpy()))
                else:
                    logits = _logits(probe, network, inputs[probe.test])
                guesses = logits.topk(min(_TOP, logits.shape[1]), dim=1).indices
                right = guesses == labels[:, None]
                first[position, where] = right[:, 0].to(torch.uint8)
                among[position] += right.any(1).sum()
                _count(bins[position], logits, right[:, 0])
            done += len(raw.indices)
            if progress:
                progress(done, -(-images // group.size))
    finally:
        network.train(was_training)
    # Each image was counted by one process only, so that sums are unions.
    for tensor in (first, among, read, bins):
        group.sum(tensor)
    n = int(read.sum())
    hits1 = first.sum(1, dtype=torch.long).tolist()
    errors = [calibration_error(part) for part in bins]
    found = zip(wanted, hits1, among.tolist(), errors, strict=True)
    scores = {p: Score(n, a, b, error) for p, a, b, error in found}
    hits = {p: first[i].bool().cpu() for i, p in enumerate(wanted)}
    return Measurement(scores, hits, read.bool().cpu())


def _count(bins: Tensor, logits: Tensor, right: Tensor) -> None:
    """Add a batch to the bins [b, 3] of one probe's calibration error."""
    scores = logits.double().softmax(1).amax(1)
    places = (scores * len(bins)).long().clamp(max=len(bins) - 1)
    bins.index_add_(0, places, torch.stack([torch.ones_like(scores), scores, right], dim=1))


def table_probes(rows: Sequence[int], tests: Sequence[int]) -> list[AnyProbe]:
    """Return the probes of Table 1: every row (encoding and BN of S_j) at every test resolution."""
    return [Probe(test, row) for row in rows for test in tests]


def serving_probe(test: int, mode: Mode, trained: Sequence[int]) -> Probe:
    """Return the probe of the network served at (test, mode); the same network, the same object."""
    near = nearest(test, trained)
    if mode is Mode.PROXY or test == near:
        return Probe(test, near)
    return Probe(test, test, mode)
