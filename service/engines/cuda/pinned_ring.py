"""Host memory that a device copies from and to by itself, for as many batches as are in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Semaphore
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from service.engines.cuda.graphs import GraphDevice


@dataclass(frozen=True, eq=False)
class Slot:
    """The buffers of one batch."""

    images: Tensor
    """Pinned bytes that pixels are written to."""
    uploaded: Tensor
    """Where the device has a copy of them."""
    logits: Tensor
    """Pinned floats that come back."""


class PinnedRing:
    """A few slots; a batch holds one from its first byte to its last."""

    def __init__(self, device: GraphDevice, slots: int) -> None:
        self._device = device
        self._count = slots
        self._places = Semaphore(slots)
        self._lock = Lock()
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        self.image_bytes = 0
        """How many bytes of pixels a slot holds."""
        self._logits = 0

    @property
    def pinned_bytes(self) -> int:
        """Host memory that is pinned."""
        return sum(slot.images.nbytes + slot.logits.nbytes for slot in self._slots)

    def reserve(self, image_bytes: int, logits: int) -> None:
        """Make room while a network is built: pinning takes too long to do for a request.

        A batch that runs meanwhile keeps the slot it has; that one is dropped after it.
        """
        if image_bytes <= self.image_bytes and logits <= self._logits:
            return
        size, outputs = max(image_bytes, self.image_bytes), max(logits, self._logits)
        made = [
            Slot(
                self._device.pinned(size, torch.uint8),
                torch.empty(size, dtype=torch.uint8, device=self._device.device),
                self._device.pinned(outputs, torch.float32),
            )
            for _ in range(self._count)
        ]
        with self._lock:
            self._slots, self._free = made, list(made)
            self.image_bytes, self._logits = size, outputs

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """Hold a slot; waits for one if all are in flight."""
        with self._places:
            with self._lock:
                taken = self._free.pop()
            try:
                yield taken
            finally:
                with self._lock:
                    if taken in self._slots:
                        self._free.append(taken)
