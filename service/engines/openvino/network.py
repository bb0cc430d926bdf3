"""A main network that OpenVINO compiled: for one image, and, once that is made, for several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from service.engines.base import Batch, finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from san_core.frontier import OperatingPoint

_SETTLED = 16
"""The largest batch that is tried out before a network counts as ready for batches."""


@dataclass
class OpenVinoNetwork:
    """A compiled main network."""

    point: OperatingPoint
    memory_bytes: int
    single: Any
    """Request of the network compiled for one image: knowing the batch is worth a fifth."""
    least: int
    most: int
    """How many images the network for several takes."""
    make_several: Callable[[], Any] | None = None
    """Compiles the network for several; None if there are only single images, or it is there."""
    several: Any = None
    """Its request; until there is one, images run one by one."""

    def finish(self) -> None:
        """Make ready for batches: compile for several images and try each size once."""
        if self.make_several is None:
            return
        request, self.make_several = self.make_several(), None
        side = self.point.resolution
        most = min(self.most, _SETTLED)
        values = np.zeros((most, side, side, 3), dtype=np.float32)
        for size in range(most, self.least - 1, -1):  # a size's first time costs several runs
            _infer(request, values[:size])
        self.several = request

    def run(self, images: Batch) -> NDArray[np.float32]:
        """Run images [n, T, T, 3] and return logits [n, classes]."""
        values = np.asarray(images, np.float32, order="C")  # its tensors share the memory
        if len(values) == 1:
            return finite(_infer(self.single, values))
        logits = []
        while left := len(values):
            request, size = self.single, 1
            if self.several is not None and self.least <= left:
                request, size = self.several, min(left, self.most)
            logits.append(_infer(request, values[:size]))
            values = values[size:]
        return finite(np.concatenate(logits))


def _infer(request: Any, values: NDArray[np.float32]) -> NDArray[np.float32]:
    from openvino import Tensor

    request.set_input_tensor(Tensor(values, shared_memory=True))
    request.infer()
    logits: NDArray[np.float32] = request.get_output_tensor().data.copy()
    return logits
