"""Generating main networks at the speed of memory.

Between two encodings only the kernels differ: one fused multiply-add into a buffer, a fresh one or
one that is used again. The rest of a state dict is the meta network's own tensors, cut into layers
once per private batch norm.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from san_core.network.network_config import KernelSlot


class StateDict(dict[str, Tensor]):
    """A generated state dict, with the layers' versions that some architectures ask for."""

    def __init__(self, tensors: Mapping[str, Tensor], metadata: object) -> None:
        super().__init__(tensors)
        self._metadata = metadata


class KernelBuffer:
    """Memory for the kernels of one main network, which the next one generated in it overwrites.

    It keeps the state dicts made in it: of the next main network only the numbers are new.
    """

    def __init__(self) -> None:
        self.flat: Tensor | None = None
        self._made: dict[int, tuple[Mapping[str, Tensor], StateDict]] = {}

    def state_dict(
        self,
        key: int,
        around: Mapping[str, Tensor],
        flat: Tensor,
        make: Callable[[Mapping[str, Tensor], Tensor], StateDict],
    ) -> StateDict:
        """Return `make(around, flat)`, made once as long as neither has moved in memory."""
        if flat is not self.flat:
            self.flat = flat
            self._made.clear()
        found = self._made.get(key)
        if found is None or found[0] is not around:
            found = self._made[key] = around, make(around, flat)
        return found[1]


class StateDictTemplate:
    """The stock state dict of one network, its kernels left open."""

    def __init__(self, skeleton: nn.Module, kernels: Sequence[KernelSlot]) -> None:
        stock = skeleton.state_dict()
        self._order = tuple(stock)
        self._metadata = getattr(stock, "_metadata", None)
        self._kernel_names = [f"{slot.name}.weight" for slot in kernels]
        self._kernel_shapes = [torch.empty(slot.shape, device="meta") for slot in kernels]
        self._remembered: dict[int, tuple[list[int], dict[str, Tensor]]] = {}

    def around_kernels(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Bring all tensors but the kernels into the stock order, with places for the kernels."""
        open_places = dict.fromkeys(self._kernel_names, torch.empty(0))
        tensors = {name: tensor.detach() for name, tensor in tensors.items()} | open_places
        return {name: tensors[name] for name in self._order}

    def remembered(
        self, key: int, sources: Sequence[Tensor], make: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Return `around_kernels(make())`, made anew only if a source has moved in memory.

        What it holds are views of the sources, so writing to these needs no new one.
        """
        addresses = [tensor.data_ptr() for tensor in sources]
        found = self._remembered.get(key)
        if found is None or found[0] != addresses:
            found = addresses, self.around_kernels(make())
            self._remembered[key] = found
        return found[1]

    def filled(self, around: Mapping[str, Tensor], flat: Tensor) -> StateDict:
        """Return the state dict with kernels that are views of `flat` [N]."""
        state = StateDict(around, self._metadata)
        # One call into C++; splitting and viewing one by one costs more than generating does.
        kernels = torch._C._nn.unflatten_dense_tensors(flat, self._kernel_shapes)
        state.update(zip(self._kernel_names, kernels, strict=True))
        return state
