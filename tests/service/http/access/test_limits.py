import pytest

from san_core.errors import CorruptImageError
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


def test_who_sends_more_than_can_be_decoded_is_read_more_slowly():
    now = [0.0]
    limits = ClientLimits(max_requests=8, max_bytes=1_000_000_000, share=1.0, clock=lambda: now[0])
    one, other = begin(limits, "a"), begin(limits, "b")
    one.add_bytes(60_000_000)
    assert one.pause_s() == 0
    one.add_bytes(68_000_000)
    assert one.pause_s() == pytest.approx(1.0)
    assert begin(limits, "a").pause_s() == pytest.approx(1.0)
    assert other.pause_s() == 0
    now[0] = 1000.0
    assert one.pause_s() == 0


def test_who_is_refused_again_and_again_hears_of_it_later():
    now = [0.0]
    limits = ClientLimits(max_requests=8, max_bytes=100, share=1.0, clock=lambda: now[0])
    fault = CorruptImageError("no image")
    assert [limits.penalty_s("a", fault) for _ in range(100)] == [0.0] * 100
    assert limits.penalty_s("a", fault) == pytest.approx(0.002)
    assert limits.penalty_s("a", OverloadedError("too much", own=True)) == pytest.approx(0.004)
    for _ in range(1000):
        assert limits.penalty_s("a", fault) <= 0.25
    assert limits.penalty_s("a", fault) == 0.25
    assert limits.penalty_s("b", fault) == 0
    # Overload is nobody's fault: whoever is told must hear of it at once.
    assert limits.penalty_s("a", OverloadedError("too many")) == 0
    now[0] = 10_000.0
    assert limits.penalty_s("a", fault) == 0
