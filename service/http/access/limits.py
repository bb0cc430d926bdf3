"""What one client may have in flight: requests, and bytes of their bodies as they arrive.

Bytes count when they are here, not when they are announced: an announcement costs nothing, so it
must reserve nothing. One client gets at most a share of what the service takes in all.

Nor may it keep the event loop busy: what it sends is read at a pace that the service could decode
at, and if what it sends is refused again and again it is told so later and later.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NoReturn

from service.errors import OverloadedError, status_and_slug
from service.http.access.refusals import Refusals
from service.runtime.clock import Clock, monotonic_ms
from service.runtime.recent import Recent

_RETRY_MS = 1000.0
_HALF_MS = 1000.0
_MOST_BYTES = 64_000_000
"""Of one client, lately: 44 MB a second, several times what two cores can decode and classify."""
_FAULTS = frozenset({400, 408, 413, 415, 422})


@dataclass(slots=True)
class InFlight:
    """What one client has in flight."""

    requests: int = 0
    bytes: int = 0


class ClientLimits:
    """Counts requests and bytes in flight, in all and by client."""

    def __init__(
        self, *, max_requests: int, max_bytes: int, share: float, clock: Clock = monotonic_ms
    ) -> None:
        self.max_bytes = max_bytes
        self.client_requests = max(1, int(max_requests * share))
        self.client_bytes = max(1, int(max_bytes * share))
        self.bytes = 0
        """In flight, of all clients."""
        self.clients: defaultdict[str, InFlight] = defaultdict(InFlight)
        """Those that have something in flight."""
        self.sent = Recent(clock, _HALF_MS)
        self.refused = 0
        self._refusals = Refusals(clock)

    def __len__(self) -> int:
        """How many clients have something in flight."""
        return len(self.clients)

    def penalty_s(self, client: str, error: Exception) -> float:
        """Count a refusal that is the client's own fault; how long it should wait to hear it."""
        if not (getattr(error, "own", False) or status_and_slug(error)[0] in _FAULTS):
            return 0.0
        return self._refusals.pause_s(client)

    def forget(self, client: str) -> None:
        """Keep nothing of a client that has nothing in flight."""
        if not self.clients[client].requests:
            del self.clients[client]


class Allowance:
    """What one request holds; give it back with `close`."""

    __slots__ = ("_bytes", "_client", "_limits", "_requests")

    def __init__(self, limits: ClientLimits, client: str) -> None:
        self._limits = limits
        self._client = client
        self._requests = self._bytes = 0

    def add_requests(self, count: int) -> None:
        """Count more requests, or raise."""
        most, mine = self._limits.client_requests, self._limits.clients[self._client]
        if mine.requests + count > most:
            self._refuse(
                f"This client has {mine.requests} requests here; one client may have {most}."
            )
        mine.requests += count
        self._requests += count

    def add_bytes(self, size: int) -> None:
        """Count bytes that arrived, or raise."""
        limits, mine = self._limits, self._limits.clients[self._client]
        if mine.bytes + size > limits.client_bytes or limits.bytes + size > limits.max_bytes:
            self._refuse(
                f"Bodies of {limits.bytes} bytes are here, {mine.bytes} of this client: as many as "
                "the service takes at once."
            )
        mine.bytes += size
        limits.bytes += size
        self._bytes += size
        limits.sent.add(self._client, size)

    def pause_s(self) -> float:
        """How long to wait before more of this client's bytes are read."""
        return self._limits.sent.excess_ms(self._client, _MOST_BYTES) / 1000

    def close(self) -> None:
        """Give everything back; once is enough."""
        if self._requests:
            mine = self._limits.clients[self._client]
            mine.requests -= self._requests
            mine.bytes -= self._bytes
            self._limits.bytes -= self._bytes
            self._limits.forget(self._client)
            self._requests = self._bytes = 0

    def _refuse(self, sentence: str) -> NoReturn:
        self._limits.refused += 1
        self._limits.forget(self._client)
        raise OverloadedError(sentence, _RETRY_MS, own=True)
