"""Batches from loader processes, with unreadable files counted and the wait for data measured."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from san_core.preprocessing import Preprocessing
from training.data.folder import ImageFolder
from training.data.order import Order
from training.data.samples import CentreSamples, RawBatch, Sample, TrainingSamples, collate
from training.errors import DataError
from training.runtime.distributed import Group, local_processes
from training.runtime.interrupt import leave_signals_to_parent

_PREFETCH = 4
"""Batches that each loader process has ready. Chosen."""
_TOO_MUCH_WAIT = 0.1
"""Share of an epoch spent waiting for data from which on there are more processes. Chosen."""
_MOST_WORKERS = 16
"""Each holds its own batches in memory; chosen, not measured."""

log = logging.getLogger(__name__)


def cores() -> int:
    """Return the cores of this machine that are this process's share."""
    return max(1, len(os.sched_getaffinity(0)) // local_processes())


def first_workers(device: torch.device) -> int:
    """Choose loader processes to begin with.

    An accelerator leaves the cores to the loader. On the CPU the network needs them, and one
    process in four cores keeps it fed.
    """
    if device.type == "cpu":
        return max(1, cores() // 4)
    return min(cores(), _MOST_WORKERS)


class Unreadable:
    """Files that could not be read: each named once, too many of them an error."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.files: set[str] = set()

    def add(self, files: Sequence[str]) -> None:
        """Note files; raise DataError beyond the limit."""
        for name in files:
            if name in self.files:
                continue
            self.files.add(name)
            log.warning("Skipped %s: it cannot be read as an image.", name)
        if len(self.files) > self.limit:
            shown = ", ".join(sorted(self.files)[:5])
            raise DataError(
                f"{len(self.files)} files cannot be read, more than the {self.limit} that are "
                f"tolerated: {shown} … Repair them or raise --max-unreadable."
            )


class Normaliser:
    """uint8 [n, S, S, 3] to normalised float [n, 3, S, S] on the device."""

    def __init__(
        self, preprocessing: Preprocessing, device: torch.device, *, channels_last: bool = False
    ) -> None:
        self._device = device
        self._channels_last = channels_last
        self._scale = torch.from_numpy(preprocessing.scale).to(device).view(1, 3, 1, 1)
        self._offset = torch.from_numpy(preprocessing.offset).to(device).view(1, 3, 1, 1)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Move and normalise."""
        moved = pixels.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        layout = torch.channels_last if self._channels_last else torch.contiguous_format
        moved = moved.to(torch.float32, memory_format=layout)
        return moved.mul_(self._scale).add_(self._offset)


class _Batches:
    """The batch sampler of a loader whose processes outlive an epoch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.epoch = 0
        self.first_step = 0

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return self.order.batches(self.epoch, self.first_step)


class TrainingLoader:
    """Training batches of any epoch from any step on."""

    def __init__(
        self,
        samples: TrainingSamples,
        order: Order,
        *,
        device: torch.device,
        workers: int = -1,
        max_unreadable: int = 100,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.order = order
        self.labelled = bool(samples.folder.classes)
        self.unreadable = Unreadable(max_unreadable)
        self.wait_seconds = 0.0
        self.workers = first_workers(device) if workers < 0 else workers
        self._adapts = workers < 0
        self._samples = samples
        self._device = device
        self._batches = _Batches(order)
        self._clock = clock
        self._loader = self._make()

    def _make(self) -> DataLoader[Sample]:
        options: dict[str, Any] = {}
        if self.workers:
            options = {"prefetch_factor": _PREFETCH, "persistent_workers": True}
        return DataLoader(
            self._samples,
            batch_sampler=self._batches,
            num_workers=self.workers,
            collate_fn=collate,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=leave_signals_to_parent,
            **options,
        )

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield the batches of an epoch, adding up the seconds spent waiting for them."""
        self._batches.epoch, self._batches.first_step = epoch, first_step
        batches = iter(self._loader)
        while True:
            started = self._clock()
            batch: RawBatch | None = next(batches, None)
            self.wait_seconds += self._clock() - started
            if batch is None:
                return
            self.unreadable.add(batch.unreadable)
            if not batch.indices:
                raise DataError("A whole batch of images cannot be read. Check the folder.")
            yield batch

    def adapt(self, wait_share: float) -> None:
        """Use more loader processes from the next epoch on if the network waited for data."""
        most = min(cores(), _MOST_WORKERS)
        if self._adapts and wait_share > _TOO_MUCH_WAIT and self.workers < most:
            self.workers = min(most, self.workers * 2)
            log.info("The network waited for data; using %d loader processes.", self.workers)
            self._loader = self._make()


class _Share(Dataset[Sample]):
    """Every process's own part of the images: each image once, in one process."""

    def __init__(self, samples: CentreSamples, group: Group) -> None:
        self.samples = samples
        self.indices = range(group.rank, len(samples.folder), group.size)

    def __getitem__(self, position: int) -> Sample:
        return self.samples[self.indices[position]]

    def __len__(self) -> int:
        return len(self.indices)


def centre_batches(
    folder: ImageFolder,
    resolutions: Sequence[int],
    preprocessing: Preprocessing,
    group: Group,
    *,
    batch_size: int,
    workers: int = -1,
    max_unreadable: int = 100,
) -> Iterator[RawBatch]:
    """Yield this process's share of the images, centre-cropped; unreadable ones are left out."""
    unreadable = Unreadable(max_unreadable)
    loader = DataLoader(
        _Share(CentreSamples(folder, resolutions, preprocessing), group),
        batch_size=batch_size,
        num_workers=first_workers(group.device) if workers < 0 else workers,
        collate_fn=collate,
        worker_init_fn=leave_signals_to_parent,
    )
    for batch in loader:
        unreadable.add(batch.unreadable)
        if batch.indices:
            yield batch
