from ipaddress import ip_network
from typing import Any

import pytest

from service.request.client import ClientIdentity, is_loopback

PROXIES = (ip_network("10.0.0.0/8"), ip_network("127.0.0.1/32"))


def scope(peer: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    return {
        "client": None if peer is None else (peer, 1234),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }


def test_an_address_is_a_client():
    clients = ClientIdentity()
    assert clients.of(scope("192.0.2.7")) == "192.0.2.7"
    assert clients.of(scope(None)) == "local"


def test_addresses_of_one_ipv6_network_are_one_client():
    clients = ClientIdentity()
    one, other = scope("2001:db8::1"), scope("2001:db8::ffff:1")
    assert clients.of(one) == clients.of(other) == "2001:db8::/64"
    assert clients.of(scope("2001:db8:0:1::1")) != clients.of(one)
    assert clients.of(scope("::ffff:192.0.2.7")) == "192.0.2.7"


def test_a_key_is_a_client_only_where_keys_are_asked_for():
    asked = scope("192.0.2.7", ("X-API-Key", "first"))
    assert ClientIdentity().of(asked) == "192.0.2.7"
    keyed = ClientIdentity(keyed=True)
    assert keyed.of(asked).startswith("key:")
    assert "first" not in keyed.of(asked)
    assert keyed.of(asked) == keyed.of(scope("192.0.2.8", ("Authorization", "Bearer first")))
    assert keyed.of(asked) != keyed.of(scope("192.0.2.7", ("X-API-Key", "second")))
    assert keyed.of(scope("192.0.2.7")) == "192.0.2.7"


def test_only_a_trusted_proxy_is_believed():
    told = ("X-Forwarded-For", "198.51.100.9")
    assert ClientIdentity().of(scope("127.0.0.1", told)) == "127.0.0.1"
    clients = ClientIdentity(trusted_proxies=PROXIES)
    assert clients.of(scope("10.1.2.3", told)) == "198.51.100.9"
    assert clients.of(scope("192.0.2.7", told)) == "192.0.2.7"


@pytest.mark.parametrize(
    ("header", "client"),
    [
        ("1.1.1.1, 198.51.100.9", "198.51.100.9"),  # what a client puts in front is not read
        ("198.51.100.9, 10.9.9.9", "198.51.100.9"),  # nor are proxies of ours clients
        ("localhost.evil", "10.1.2.3"),
        ("testclient", "10.1.2.3"),
        ("", "10.1.2.3"),
        ("x" * 100_000, "10.1.2.3"),
        ("10.0.0.1, 10.0.0.2", "10.0.0.1"),
    ],
)
def test_a_proxy_tells_the_last_address_that_is_not_a_proxy(header: str, client: str):
    clients = ClientIdentity(trusted_proxies=PROXIES)
    assert clients.of(scope("10.1.2.3", ("X-Forwarded-For", header))) == client


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback(address: str):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["localhost.evil", "127.evil.example", "::1234", "testclient", "", "8.8.8.8"]
)
def test_what_only_looks_like_loopback(address: str):
    assert not is_loopback(address)
