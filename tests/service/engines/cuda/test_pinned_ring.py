"""Slots for the batches in flight: one each, and larger ones while some are held."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
import torch

from service.engines.cuda.pinned_ring import PinnedRing
from tests.service.engines.cuda.graph_device import NotedDevice


@pytest.fixture
def device():
    return NotedDevice()


def reserved(device, image_bytes, logits, ring=None):
    ring = ring or PinnedRing(device, 2)
    with device.building():
        ring.reserve(image_bytes, logits)
    return ring


def test_batches_in_flight_have_slots_of_their_own(device):
    ring = reserved(device, 12, 4)
    with ring.slot() as one, ring.slot() as other:
        assert one is not other
        one.images.fill_(1)
        other.images.fill_(2)
        assert one.images.unique().tolist() == [1]
    assert ring.pinned_bytes == 2 * (12 + 4 * 4)


def test_one_more_waits_until_a_slot_is_free(device):
    ring, got = reserved(device, 12, 4), threading.Event()

    def third():
        with ring.slot():
            got.set()

    with ExitStack() as held:
        held.enter_context(ring.slot())
        with ring.slot():
            waiting = threading.Thread(target=third)
            waiting.start()
            assert not got.wait(0.05)
        assert got.wait(30)
    waiting.join()


def test_a_slot_is_free_again_after_an_error(device):
    ring = reserved(device, 12, 4)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), ring.slot():
            raise ZeroDivisionError
    with ring.slot() as one, ring.slot() as other:
        assert one is not other


def test_a_batch_keeps_its_slot_while_larger_ones_take_its_place(device):
    ring = reserved(device, 12, 4)
    with ring.slot() as old:
        reserved(device, 48, 2, ring)
        assert (ring.image_bytes, len(old.images)) == (48, 12)
        with ring.slot() as new:
            assert (len(new.images), len(new.logits)) == (48, 4)  # neither ever becomes smaller
    with ring.slot() as one, ring.slot() as other:
        assert old not in (one, other)
        assert {len(slot.uploaded) for slot in (one, other)} == {48}


def test_what_fits_is_not_pinned_again(device):
    ring = reserved(device, 12, 4)
    device.notes.clear()
    reserved(device, 6, 4, ring)
    assert not device.notes
    with ring.slot() as slot:
        assert slot.images.dtype == slot.uploaded.dtype == torch.uint8
        assert slot.logits.dtype == torch.float32
