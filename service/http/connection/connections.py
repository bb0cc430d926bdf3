"""How many connections are open, in all and from one address.

File descriptors run out before memory does, and then nothing can be accepted, read or logged. So a
part of them is never given to connections, and one address never gets all of the rest. Where there
is no room the connection that has been idle longest makes some.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from ipaddress import ip_address
from typing import Protocol

from service.http.access.refusals import Refusals
from service.request.client import Network

_RESERVED = 128
"""File descriptors for all that is not a connection: libraries, files, helpers, the log."""
_LEAST = 8
_SHARE = 4
"""One address gets at most a quarter of the connections."""


class Connection(Protocol):
    """What is counted."""

    transport: asyncio.Transport

    @property
    def is_idle(self) -> bool:
        """Whether no request is served or begun."""


def affordable_connections(most: int) -> int:
    """As many as the file descriptors allow, after taking all that the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return most if soft == resource.RLIM_INFINITY else max(_LEAST, min(most, soft - _RESERVED))


class Connections:
    """Counts connections and says when there may be no more."""

    def __init__(self, most: int = 4096, trusted_proxies: tuple[Network, ...] = ()) -> None:
        self.refused = 0
        self._most = most
        self._most_of_one = max(_LEAST, most // _SHARE)
        self._proxies = trusted_proxies
        self._open: dict[Connection, None] = {}  # in the order they were opened
        self._by_address: Counter[str] = Counter()
        self._refusals = Refusals()

    def __len__(self) -> int:
        return len(self._open)

    def take(self, connection: Connection, address: str) -> bool:
        """Count a new connection; False if it must be closed."""
        self._open[connection] = None
        self._by_address[address] += 1
        if self._by_address[address] > self._most_of_one and not self._is_proxy(address):
            self.refused += 1
            return False
        if len(self._open) > self._most and not self._close_an_idle_one(connection):
            self.refused += 1
            return False
        return True

    def release(self, connection: Connection, address: str) -> None:
        """Forget a connection that is closed; closing twice does no harm."""
        if connection in self._open:
            del self._open[connection]
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def pause_s(self, address: str) -> float:
        """Count a request that cannot be read; how long its sender should wait to be told."""
        return 0.0 if self._is_proxy(address) else self._refusals.pause_s(address)

    def _close_an_idle_one(self, newest: Connection) -> bool:
        for connection in self._open:
            if connection is not newest and connection.is_idle:
                connection.transport.close()
                return True
        return False

    def _is_proxy(self, address: str) -> bool:
        if not self._proxies:
            return False
        try:
            return any(ip_address(address) in network for network in self._proxies)
        except ValueError:
            return False
