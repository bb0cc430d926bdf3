"""One main network on a device: its weights, and its batches' way there and back.

Networks of one resolution share a `GraphBody`: the weights of the one whose turn it is are copied
into it before its batch runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from san_core.frontier import OperatingPoint
from service.engines.base import Batch, finite
from service.engines.cuda.graphs import GraphBody, GraphDevice
from service.engines.cuda.pinned_ring import PinnedRing, Slot
from service.engines.normalising import as_tensor

_tokens = count(1)


class GraphedNetwork:
    """One main network on a device: its weights, and the body that runs them."""

    def __init__(
        self,
        point: OperatingPoint,
        weights: Mapping[str, Tensor],
        body: GraphBody,
        device: GraphDevice,
        ring: PinnedRing,
        order: Lock,
        finish: Callable[[GraphBody], None],
        failed: Callable[[BaseException], BaseException],
    ) -> None:
        """Batches are asked for one by one, under `order`; `failed` tells what an error means."""
        self.point = point
        self.body = body
        self._weights = weights
        self._token = next(_tokens)
        self._device, self._ring, self._order = device, ring, order
        self._finish, self._failed = finish, failed
        held = sum(t.nbytes for t in weights.values())
        self.memory_bytes = held + body.memory_bytes
        """Weights and the body; the graphs' scratch memory is shared by all."""

    def run(self, images: Batch) -> NDArray[np.float32]:
        """Run images [n, T, T, 3] and return logits [n, classes]."""
        try:
            logits = [self._run(part) for part in self._parts(images)]
        except BaseException as error:
            raise self._failed(error) from error
        return finite(logits[0] if len(logits) == 1 else np.concatenate(logits))

    def finish(self) -> None:
        """Capture batches; until then they are split."""
        self._finish(self.body)

    def _parts(self, images: Batch) -> Iterator[Batch]:
        """As many images at a time as a graph and a slot hold, all of one type."""
        dtype = np.result_type(*{image.dtype for image in images})
        image_bytes = images[0].size * dtype.itemsize
        step = min(self.body.most, self._ring.image_bytes // image_bytes)
        for start in range(0, len(images), step):
            yield [image.astype(dtype, copy=False) for image in images[start : start + step]]

    def _run(self, images: Batch) -> NDArray[np.float32]:
        given = [as_tensor(image) for image in images]
        body, device, n = self.body, self._device, len(given)
        size = sum(image.nbytes for image in given)
        with torch.inference_mode(), self._ring.slot() as slot:
            for place, image in zip(_shaped(slot.images[:size], given), given, strict=True):
                place.copy_(image)
            with self._order, device.running():
                device.upload(slot.uploaded[:size], slot.images[:size])
                body.hold(self._token, self._weights)
                device.copy([body.input[:n]], [_shaped(slot.uploaded[:size], given)])
                body.forward(n)
                logits = _logits(slot, n, body.output.shape[1])
                device.copy([logits], [body.output[:n]])
                wait = device.mark()
            wait()
            # The slot belongs to the next batch; the result is the caller's to keep.
            result: NDArray[np.float32] = logits.numpy().copy()
        return result


def _shaped(buffer: Tensor, like: Sequence[Tensor]) -> Tensor:
    """Bytes as images [n, T, T, 3]."""
    return buffer.view(like[0].dtype).view(len(like), *like[0].shape)


def _logits(slot: Slot, n: int, classes: int) -> Tensor:
    return slot.logits[: n * classes].view(n, classes)
