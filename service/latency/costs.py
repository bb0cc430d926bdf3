"""What a bundle's main networks cost: multiply-adds and bytes, counted when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable

from san_core.network.cost import Cost
from service.engines.base import Engine
from service.latency.curves import Shape


class Costs:
    """The costs of shapes, each counted once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[Shape, Cost] = {}

    def __call__(self, shape: Shape) -> Cost:
        """The cost of one image at a shape; the first time takes milliseconds."""
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = self._engine.cost(*shape)
        return found

    def unknown(self, shapes: Iterable[Shape]) -> list[Shape]:
        """Those that were never counted."""
        return [shape for shape in dict.fromkeys(shapes) if shape not in self._known]
