import pytest

from service.errors import (
    ForbiddenError,
    KeyFileError,
    UnauthorisedError,
)
from service.http.access.auth import KeyRing, Keys
from service.http.access.route_facts import Access
from service.settings import Settings


def test_rings(tmp_path):
    assert not KeyRing([])
    assert KeyRing(["a", "b"]).opens("b")
    assert not KeyRing(["a"]).opens("A")
    empty = tmp_path / "keys"
    empty.write_text("# nothing\n")
    with pytest.raises(KeyFileError, match="no key"):
        KeyRing.read((), empty)
    with pytest.raises(KeyFileError, match="cannot be read"):
        KeyRing.read((), tmp_path / "missing")


def test_admin_is_for_this_machine_unless_there_are_keys():
    keys = Keys(Settings())
    keys.check(Access.ADMIN, [], "127.0.0.1")
    for elsewhere in ("10.0.0.7", ""):
        with pytest.raises(ForbiddenError):
            keys.check(Access.ADMIN, [], elsewhere)
    with pytest.raises(ForbiddenError):
        Keys(Settings(api_keys="a")).check(Access.ADMIN, [(b"x-api-key", b"a")], "127.0.0.1")


def test_an_api_key_opens_the_api_and_nothing_public_asks_for_one():
    keys = Keys(Settings(api_keys="a"))
    for access in (Access.PUBLIC, Access.METRICS):
        keys.check(access, [], "10.0.0.7")
    with pytest.raises(UnauthorisedError):
        keys.check(Access.API, [], "127.0.0.1")
    keys.check(Access.API, [(b"authorization", b"bearer a")], "127.0.0.1")
