"""Pictures that were seen before: their exact answers, for a while.

The key is a hash of the image that nobody can compute outside of this process, so nobody can make
up a picture that gets the answer of another. It is only computed for an image that
resembles one in the cache, and after the answer was sent: until then, a picture that is new costs a
look into a dictionary.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from cachetools import TTLCache
from numpy.typing import NDArray

from san_core.frontier import OperatingPoint

_SIZE_BYTES = 400
"""What an entry takes in addition to its scores."""
_GLANCE = 32

Glance = tuple[int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Known:
    """An answer, and what gave it."""

    bundle: str
    """SHA-256 of the bundle."""
    point: OperatingPoint
    accuracy: float
    """What is expected of it, or what stands for that where it was never evaluated."""
    scores: NDArray[np.float32]
    logits: NDArray[np.float32]


@dataclass
class AnswerFacts:
    """Hits and misses."""

    hits: int = 0
    misses: int = 0


def _glance(image: bytes) -> Glance:
    """What tells most images apart without reading them."""
    middle = len(image) // 2
    return len(image), image[middle : middle + _GLANCE], image[-_GLANCE:]


def _is_secret() -> bool:
    """Whether Python hashes bytes by SipHash with a key that it drew when it started.

    Its 64 bits take a third of SHA-256's time.
    """
    drawn = os.environ.get("PYTHONHASHSEED", "random") in ("", "random")
    return drawn and sys.hash_info.algorithm.startswith("siphash")


def _sha256(image: bytes) -> bytes:
    return hashlib.sha256(image).digest()


def _size(known: Known) -> int:
    return known.scores.nbytes + known.logits.nbytes + _SIZE_BYTES


class AnswerCache:
    """The best answer to each of the last pictures, bounded in bytes and in age."""

    def __init__(self, capacity_bytes: int, ttl_s: float, clock_s: Callable[[], float]) -> None:
        self.facts = AnswerFacts()
        self._key: Callable[[bytes], Hashable] = hash if _is_secret() else _sha256
        self._answers: TTLCache[Hashable, Known] = TTLCache(
            capacity_bytes, ttl_s, timer=clock_s, getsizeof=_size
        )
        self._glances: TTLCache[Glance, None] = TTLCache(
            max(1, capacity_bytes // _SIZE_BYTES), ttl_s, timer=clock_s
        )
        self.capacity_bytes = capacity_bytes

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def size_bytes(self) -> int:
        """What the entries take."""
        return int(self._answers.currsize)

    def find(self, image: bytes, bundle: str, at_least: Callable[[], float]) -> Known | None:
        """The answer to this very picture, if it is as accurate as running it again would be.

        `at_least` is only asked for a picture that is known.
        """
        known = None
        if _glance(image) in self._glances:
            known = self._answers.get(self._key(image))
        if known is None or known.bundle != bundle or known.accuracy < at_least():
            self.facts.misses += 1
            return None
        self.facts.hits += 1
        return known

    def put(self, image: bytes, answer: Known) -> None:
        """Remember an answer, unless a better one by the same bundle is known."""
        key = self._key(image)
        known = self._answers.get(key)
        better = known is None or known.bundle != answer.bundle or answer.accuracy > known.accuracy
        if better and _size(answer) <= self.capacity_bytes:
            self._answers[key] = answer
            self._glances[_glance(image)] = None
