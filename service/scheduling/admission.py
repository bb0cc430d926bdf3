"""The door: how many requests, and how many bytes of them, are inside at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.errors import DrainingError, NotReadyError, OverloadedError


@dataclass
class AdmissionFacts:
    """Who came and who was turned away."""

    admitted: int = 0
    refused: int = 0
    most: int = 0
    """The most requests that were ever inside at once."""


class Admission:
    """Bounds what is in flight; never queues anybody at the door."""

    def __init__(self, *, max_requests: int, max_bytes: int) -> None:
        self.facts = AdmissionFacts()
        self.ready = False
        self.draining = False
        self.not_ready: Callable[[], NotReadyError | DrainingError] = lambda: NotReadyError(
            "The service is not ready; try again soon."
        )
        """What is raised until it is."""
        self.inside = 0
        self.bytes = 0
        self._max_requests = max_requests
        self._max_bytes = max_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nobody is inside."""
        return self.inside == 0

    def check(self) -> None:
        """Raise if nobody may come in now."""
        if self.draining:
            raise DrainingError("The service is shutting down; ask another replica.")
        if not self.ready:
            raise self.not_ready()

    def enter(self, size: int, drain_ms: float = 0.0) -> Visit:
        """Let a request of so many bytes in, or raise."""
        if self.inside >= self._max_requests or self.bytes + size > self._max_bytes:
            self.facts.refused += 1
            raise OverloadedError(
                f"{self.inside} requests are being served, as many as the service takes at once.",
                max(drain_ms, 1000.0),
            )
        self.facts.admitted += 1
        self.inside += 1
        self.bytes += size
        self.facts.most = max(self.facts.most, self.inside)
        return Visit(self, size)

    def leave(self, size: int) -> None:
        """The counterpart of `enter`; a `Visit` calls it once."""
        self.inside -= 1
        self.bytes -= size


class Visit:
    """One request's place inside; a context manager that gives it back."""

    __slots__ = ("_admission", "_left", "_size")

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size = size
        self._left = False

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._left:
            self._left = True
            self._admission.leave(self._size)
