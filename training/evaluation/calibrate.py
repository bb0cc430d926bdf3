"""Calibrating batch norm at more resolutions, from images of a folder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from san_core.mode import Mode
from san_core.network.calibration import exact_statistics
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from training.data.folder import ImageFolder, index_unlabelled
from training.data.loader import Normaliser, centre_batches
from training.errors import DataError
from training.runtime.distributed import Group

_BATCH = 64
"""Images at a time: the more, the steadier the statistics of a batch norm. Chosen."""


def images_at(
    folder: ImageFolder,
    resolution: int,
    preprocessing: Preprocessing,
    device: torch.device,
    *,
    workers: int = -1,
    max_unreadable: int = 100,
) -> Iterator[Tensor]:
    """Yield the folder's images at a resolution, preprocessed as the service does."""
    normalise = Normaliser(preprocessing, device)
    alone = Group(0, 1, device)
    for raw in centre_batches(
        folder,
        (resolution,),
        preprocessing,
        alone,
        batch_size=_BATCH,
        workers=workers,
        max_unreadable=max_unreadable,
    ):
        if len(raw.indices) > 1:  # one image alone has no variance where maps are 1 x 1
            yield normalise(raw.pixels[resolution])


def calibration_images(
    data: Path,
    count: int,
    preprocessing: Preprocessing,
    device: torch.device,
    *,
    workers: int = -1,
) -> Callable[[int], Iterable[Tensor]]:
    """Return what yields `count` training images of DATA at any resolution."""
    if not (data / "train").is_dir():
        raise DataError(f"Calibration takes images of {data}/train, which does not exist.")
    folder = index_unlabelled(data / "train").limited(count)
    return lambda side: images_at(folder, side, preprocessing, device, workers=workers)


def calibrate_all(
    network: ScaleAdaptiveNetwork,
    resolutions: Sequence[int],
    images: Callable[[int], Iterable[Tensor]],
    progress: Callable[[int], None] | None = None,
) -> list[int]:
    """Store exact statistics for `ideal` at each resolution; return those that were calibrated.

    At a trained resolution all modes are the same main network, with the statistics of training.
    """
    wanted = [r for r in resolutions if r not in network.resolutions]
    for resolution in wanted:
        if progress:
            progress(resolution)
        tensors = network.main_parameters(resolution, Mode.IDEAL)
        network.set_calibrated(resolution, exact_statistics(network, tensors, images(resolution)))
    return wanted
