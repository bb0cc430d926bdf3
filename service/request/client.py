"""Which client a request comes from: one string, by which limits and fair shares are counted.

An API key's hash where the service has keys; else the address, which a trusted proxy may tell in
`X-Forwarded-For`. Neither can be made up: without keys a presented key says nothing, and only what
trusted proxies added to the header is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

CLIENT = "san.client"
"""Where the identity stands in the ASGI scope."""

Network = IPv4Network | IPv6Network
_LONGEST_ADDRESS = 64
_MOST_HOPS = 16
_IPV6_CLIENT_BITS = 64
"""A household or a host gets a whole /64; it must not count as many clients."""


def presented_key(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The API key that a request carries, known or not."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
        if name == b"x-api-key":
            return value.strip().decode("latin-1")
    return None


class ClientIdentity:
    """Tells clients apart; made once from the settings."""

    def __init__(self, *, keyed: bool = False, trusted_proxies: Iterable[Network] = ()) -> None:
        self._keyed = keyed
        self._proxies = tuple(trusted_proxies)

    def of(self, scope: Mapping[str, Any]) -> str:
        """The identity of this request's client; authentication must come before."""
        if self._keyed and (key := presented_key(scope["headers"])) is not None:
            return f"key:{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        return _shared_by(self.address(scope))

    def address(self, scope: Mapping[str, Any]) -> str:
        """The address a request comes from; empty behind a Unix socket."""
        peer = scope.get("client")
        address = str(peer[0]) if peer else ""
        if not self._proxies or not self._is_proxy(address):
            return address
        hops = b",".join(
            value for name, value in scope["headers"] if name == b"x-forwarded-for"
        ).rsplit(b",", _MOST_HOPS)
        # Each proxy appends the address it heard from; the first that is not ours is the client's.
        for hop in reversed(hops[-_MOST_HOPS:]):
            heard = hop.strip().decode("latin-1")
            if _parsed(heard) is None:
                return address
            address = heard
            if not self._is_proxy(heard):
                break
        return address

    def _is_proxy(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._proxies)


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own; a name is none."""
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def is_address(text: str) -> bool:
    """Whether this is an address and not a name."""
    return _parsed(text) is not None


@lru_cache(maxsize=4096)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    if len(address) > _LONGEST_ADDRESS:
        return None
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed


@lru_cache(maxsize=4096)
def _shared_by(address: str) -> str:
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed), _IPV6_CLIENT_BITS), strict=False))
    return str(parsed) if parsed is not None else "local"
