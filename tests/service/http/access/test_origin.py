import asyncio

import pytest

from service.errors import ForbiddenError
from service.http.access.origin import OriginCheck


def ask(method: str = "POST", *, peer: str = "127.0.0.1", app: dict | None = None, **headers: str):
    served = []

    async def inner(scope, receive, send):
        served.append(scope["path"])

    scope = {
        "type": "http",
        "method": method,
        "path": "/admin/reload",
        "client": (peer, 1),
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
    }
    asyncio.run(OriginCheck(inner, **(app or {}))(scope, None, None))
    return served


LOCAL = {"local_only": True}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost:8000"},
        {"host": "localhost:8000", "origin": "http://localhost:8000"},
        {"host": "localhost:8000", "origin": "http://x", "sec_fetch_site": "same-origin"},
        {"host": "localhost:8000", "sec_fetch_site": "none"},
        {"host": "127.0.0.1"},
        {"host": "[::1]:8000"},
        {"host": "192.168.1.3:8000"},
    ],
)
def test_our_own_page_and_programs_are_served(headers):
    assert ask(app=LOCAL, **headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8000", "origin": "http://localhost:8000"},
        {"host": "localhost:8000", "origin": "null"},
        {"host": "localhost:8000", "origin": "https://evil.example"},
        {"host": "localhost:8000", "sec_fetch_site": "cross-site"},
        {"host": "localhost:8000", "sec_fetch_site": "same-site"},
        {"host": "localhost:8000", "origin": "http://localhost:8000", "sec_fetch_site": "x"},
    ],
)
def test_another_page_cannot_change_anything(headers):
    with pytest.raises(ForbiddenError, match="another origin"):
        ask(**headers)
    assert ask("GET", **headers)  # reading is for the browser to forbid


def test_an_origin_that_was_allowed_may():
    allowed = {"allowed_origins": ("https://good.example",)}
    headers = {"host": "a", "origin": "https://good.example", "sec_fetch_site": "cross-site"}
    assert ask(app=allowed, **headers)
    with pytest.raises(ForbiddenError):
        ask(app=allowed, **headers | {"origin": "https://bad.example"})


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil", "1.2.3.4.x"]
)
def test_a_name_that_was_pointed_at_this_machine_is_not_served(method, host):
    with pytest.raises(ForbiddenError, match="its own machine"):
        ask(method, app=LOCAL, host=host)
    assert ask(method, host=host)  # behind a proxy or with keys any name will do
    assert ask(method, app=LOCAL, host=host, peer="testclient")
