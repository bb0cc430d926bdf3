import pytest

from service.errors import OverloadedError
from service.http.access.limits import Allowance, ClientLimits


def begin(limits: ClientLimits, client: str) -> Allowance:
    allowance = Allowance(limits, client)
    allowance.add_requests(1)
    return allowance


def test_one_client_gets_its_share_and_others_theirs():
    limits = ClientLimits(max_requests=8, max_bytes=100, share=0.5)
    held = [begin(limits, "a") for _ in range(4)]
    with pytest.raises(OverloadedError, match="one client may have 4"):
        begin(limits, "a")
    other = begin(limits, "b")
    held[0].add_bytes(50)
    with pytest.raises(OverloadedError, match="50 of this client"):
        held[1].add_bytes(1)
    other.add_bytes(50)
    for allowance in (*held, other, other):
        allowance.close()
    assert len(limits) == 0
    assert limits.refused == 2
    begin(limits, "a").add_bytes(50)


def test_everybody_together_is_bounded_too():
    limits = ClientLimits(max_requests=8, max_bytes=100, share=0.6)
    begin(limits, "a").add_bytes(60)
    with pytest.raises(OverloadedError):
        begin(limits, "b").add_bytes(60)


def test_several_requests_at_once_count_as_many():
    limits = ClientLimits(max_requests=8, max_bytes=100, share=1.0)
    allowance = begin(limits, "a")
    allowance.add_requests(7)
    with pytest.raises(OverloadedError):
        begin(limits, "a")
    allowance.close()
    assert len(limits) == 0
