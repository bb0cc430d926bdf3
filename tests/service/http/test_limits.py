import pytest

from service.errors import OverloadedError
from service.http.limits import ClientLimits


def test_one_client_gets_its_share_and_others_theirs():
    limits = ClientLimits(max_requests=8, max_bytes=100, share=0.5)
    held = [limits.open("a") for _ in range(4)]
    with pytest.raises(OverloadedError, match="one client may have 4"):
        limits.open("a")
    other = limits.open("b")
    held[0].add_bytes(50)
    with pytest.raises(OverloadedError, match="50 of this client"):
        held[1].add_bytes(1)
    other.add_bytes(50)
    for allowance in (*held, other, other):
        allowance.close()
    assert len(limits) == 0
    assert limits.refused == 2
    limits.open("a").add_bytes(50)


def test_everybody_together_is_bounded_too():
    limits = ClientLimits(max_requests=8, max_bytes=100, share=0.6)
    limits.open("a").add_bytes(60)
    with pytest.raises(OverloadedError):
        limits.open("b").add_bytes(60)


def test_several_requests_at_once_count_as_many():
    limits = ClientLimits(max_requests=8, max_bytes=100, share=1.0)
    allowance = limits.open("a")
    allowance.add_requests(7)
    with pytest.raises(OverloadedError):
        limits.open("a")
    allowance.close()
    assert len(limits) == 0
