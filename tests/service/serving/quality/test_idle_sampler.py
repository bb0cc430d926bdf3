"""When samples are looked at."""

import asyncio
from types import SimpleNamespace

import pytest

from service.serving.quality import idle_sampler
from service.serving.quality.idle_sampler import IdleSampler, Sample

POLL_S = 0.5
SAMPLE = Sample(b"image", 64, 3, "bundle")


class Patient(IdleSampler):
    """Notes when it looked."""

    patience_s = 2.0

    def __init__(self, admission):
        super().__init__(admission, 1.0, poll_s=POLL_S)
        self.looked = []

    async def compare(self, sample):
        self.looked.append(self._admission.now)


def looks(monkeypatch, *, arrivals, idle, polls=20, draining=False):
    """When ten samples are looked at, if so many requests come between two polls."""
    facts = SimpleNamespace(admitted=0)
    admission = SimpleNamespace(facts=facts, is_idle=idle, draining=draining, now=0.0)
    sampler = Patient(admission)

    async def tick(seconds):
        admission.now += seconds
        facts.admitted += arrivals
        if admission.now > polls * POLL_S:
            raise asyncio.CancelledError

    # Its name for the module alone: a server of another test may be asleep on a thread.
    monkeypatch.setattr(idle_sampler, "asyncio", SimpleNamespace(sleep=tick))
    for _ in range(10):
        sampler.offer(SAMPLE)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sampler.watch())
    return sampler.looked


def test_in_a_pause_the_engine_is_free_between_two_samples(monkeypatch):
    assert looks(monkeypatch, arrivals=0, idle=True)[:4] == [1.0, 1.5, 2.0, 2.5]


def test_without_a_pause_a_sample_waits_until_no_request_is_inside(monkeypatch):
    assert looks(monkeypatch, arrivals=1, idle=True) == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_where_requests_are_always_inside_it_is_rarely_looked_at(monkeypatch):
    assert looks(monkeypatch, arrivals=1, idle=False) == [8.0]


def test_a_service_that_drains_looks_at_nothing(monkeypatch):
    assert looks(monkeypatch, arrivals=0, idle=True, draining=True) == []
