"""Accuracy without labels."""

import asyncio
from types import SimpleNamespace

from service.serving.quality.agreement import Agreement
from service.serving.quality.idle_sampler import Sample


def test_a_sample_of_a_replaced_bundle_is_not_compared():
    served = SimpleNamespace(sha256="new", frontier=())
    agreement = Agreement(lambda: served, None, None, None, 1.0)
    agreement.offer(Sample(b"image", 64, 3, "old"))
    (sample,) = agreement._pending
    asyncio.run(agreement.compare(sample))  # or it would ask for the best point of the frontier
