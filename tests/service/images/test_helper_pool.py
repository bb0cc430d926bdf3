"""Real helper processes: what they decode, and what becomes of them."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from san_core.errors import CorruptImageError, ImageTooLargeError
from san_core.preprocessing import Preprocessing, decode
from service.app import NICE_DECODING, make_service
from service.errors import ExpiredError, OverloadedError
from service.images import helper_pool
from service.images.decoder import DecodeLimits, Decoder, are_quick
from service.images.formats import FORMATS, READERS
from service.images.header import read_header
from service.images.helper_pool import HelperPool
from service.runtime.clock import monotonic_ms
from service.runtime.thread_pool import Workers
from tests.campaign.images import attack
from tests.fuzz.mutations import mutated
from tests.service.conftest import picture

HOW = Preprocessing()


def make_pool(**options: object) -> HelperPool:
    given: dict = {"memory_bytes": 128_000_000, "formats": FORMATS, "max_pixels": 50_000_000}
    return HelperPool(2, **given | options)


@pytest.fixture(scope="module")
def pool() -> Iterator[HelperPool]:
    made = make_pool()
    yield made
    made.close()


def decoded(pool: HelperPool, data: bytes, cpu_ms: float = 2000.0) -> np.ndarray:
    return asyncio.run(pool.decode(data, HOW, 96, cpu_ms=cpu_ms))[0]


def processes(pool: HelperPool) -> list[int]:
    return [h._process.pid for h in pool._helpers if h._process is not None]


def test_what_decodes_for_long_is_nicer_than_all_else_that_computes(make_settings):
    service = make_service(make_settings())
    try:
        machinery, helpers = service.machinery, service._helpers
        assert machinery.large_decoder._nice == NICE_DECODING > machinery.builders._nice
        data = picture(image_format="PNG")
        asyncio.run(helpers.decode(data, HOW, 96, cpu_ms=2000.0))
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        for pid in processes(helpers):
            assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, ours + NICE_DECODING)
    finally:
        asyncio.run(service.stop())


@pytest.mark.parametrize("name", READERS)
def test_a_helper_decodes_as_the_reference_does(pool, name):
    data = picture(image_format=name)
    expected = HOW.to_pixels(decode(data, formats=FORMATS), 96)
    assert np.array_equal(decoded(pool, data), expected)


def test_a_helper_crops_by_the_resolution(pool):
    how = Preprocessing(crops=((64, 0.6), (128, 0.8)))
    data = picture(image_format="PNG")
    pixels = asyncio.run(pool.decode(data, how, 96, cpu_ms=2000.0))[0]
    assert np.array_equal(pixels, how.to_pixels(decode(data), 96))


def test_what_is_no_image_is_said_as_ever(pool):
    with pytest.raises(CorruptImageError):
        decoded(pool, picture(image_format="PNG")[:60])
    assert processes(pool)


def test_a_damaged_image_of_a_format_that_is_taken_is_corrupt(pool):
    damaged = bytearray(picture(image_format="AVIF"))
    damaged[40:60] = bytes(20)
    with pytest.raises(CorruptImageError, match="AVIF is corrupt"):
        decoded(pool, bytes(damaged))


def test_too_much_time_ends_the_helper_and_nothing_else(pool, monkeypatch):
    monkeypatch.setattr(helper_pool, "_LEAST_WALL_S", 60.0)  # its CPU time is what ends it
    before = pool.lost["SIGPROF"]
    with pytest.raises(ImageTooLargeError, match="more than 100 ms"):
        decoded(pool, attack("ppm of comments"), cpu_ms=100)
    assert pool.lost["SIGPROF"] == before + 1
    assert decoded(pool, picture(image_format="PNG")).shape == (96, 96, 3)


def test_too_much_memory_is_refused():
    small = make_pool(memory_bytes=20_000_000)
    try:
        with pytest.raises((ImageTooLargeError, CorruptImageError)):
            decoded(small, picture(4000, 4000, "PNG"), cpu_ms=20_000)
        assert decoded(small, picture(image_format="PNG")).shape == (96, 96, 3)
    finally:
        small.close()


def test_a_decoder_that_crashes_costs_one_request(pool):
    decoded(pool, picture(image_format="PNG"))
    for pid in processes(pool):
        os.kill(pid, signal.SIGSEGV)
    with pytest.raises(CorruptImageError, match="ends its decoder"):
        decoded(pool, picture(image_format="PNG"))

    async def after() -> int:
        found = 0
        for _ in range(3):
            try:
                await pool.decode(picture(image_format="PNG"), HOW, 96, cpu_ms=2000)
                found += 1
            except CorruptImageError:
                pass
        return found

    assert asyncio.run(after()) >= 2


def test_a_helper_has_no_descriptor_and_no_secret_of_ours(pool, monkeypatch):
    monkeypatch.setenv("SAN_API_KEYS", "secret")
    made = make_pool()
    try:
        decoded(made, picture(image_format="PNG"))
        [pid] = processes(made)
        open_now = {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        assert open_now <= {0, 1, 2}
        assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        limits = Path(f"/proc/{pid}/limits").read_text()
        files = next(line for line in limits.splitlines() if line.startswith("Max open files"))
        assert files.split()[3:5] == ["3", "3"]
        assert "torch" not in Path(f"/proc/{pid}/maps").read_text()
    finally:
        made.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_helper_that_hangs_is_given_up(pool, monkeypatch):
    monkeypatch.setattr(helper_pool, "_LEAST_WALL_S", 0.3)
    decoded(pool, picture(image_format="PNG"))
    for pid in processes(pool):
        os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(ImageTooLargeError):
        decoded(pool, picture(image_format="PNG"), cpu_ms=10)
    assert time.monotonic() - begun < 30
    pool.close()
    pool.__init__(2, memory_bytes=128_000_000, formats=FORMATS, max_pixels=50_000_000)


def test_one_client_cannot_fill_the_queue(pool):
    async def main() -> list[object]:
        jobs = (
            pool.decode(picture(image_format="PNG"), HOW, 96, cpu_ms=5000, client="a")
            for _ in range(20)
        )
        other = pool.decode(picture(image_format="PNG"), HOW, 96, cpu_ms=5000, client="b")
        return await asyncio.gather(*jobs, other, return_exceptions=True)

    *mine, other = asyncio.run(main())
    refused = [found for found in mine if isinstance(found, OverloadedError)]
    assert len(refused) == 4
    assert not isinstance(other, Exception)


def test_who_decoded_much_waits_for_who_decoded_little(pool):
    pool._debts.add("greedy", 5000.0)
    order: list[str] = []

    async def main() -> None:
        def decode(client: str) -> asyncio.Task:
            return asyncio.ensure_future(
                pool.decode(
                    picture(image_format="PNG"),
                    HOW,
                    96,
                    cpu_ms=5000,
                    client=client,
                    check=lambda: order.append(client),
                )
            )

        await asyncio.gather(*[decode(c) for c in ["greedy"] * 6 + ["modest"] * 2])

    asyncio.run(main())
    assert set(order[:4]) >= {"modest"}
    assert order[-1] == "greedy"


def test_the_decoder_sends_each_image_where_it_belongs(pool):
    async def main() -> None:
        workers = Workers("decode", 1)
        decoder = Decoder(workers, workers, pool, monotonic_ms, DecodeLimits())
        try:
            for name, plain in (("JPEG", True), ("PNG", False)):
                data = picture(image_format=name)
                header = await decoder.header(data, 0.0)
                job = decoder.job(data, HOW, 96, monotonic_ms() + 60_000, header=header)
                assert job.header.plain == job.quick == plain
                found = await decoder.decode(job, 0.0)
                assert found.pixels.shape == (96, 96, 3)
                assert found.took_ms > 0
                late = decoder.job(data, HOW, 96, 0.0, late=lambda: False)
                with pytest.raises(ExpiredError):
                    await decoder.decode(late, 0.0)
        finally:
            workers.close()

    asyncio.run(main())


def test_a_small_picture_does_not_wait_for_a_large_one(pool):
    async def main() -> None:
        workers, large = Workers("decode", 1), Workers("large", 1)
        decoder = Decoder(workers, large, pool, monotonic_ms, DecodeLimits())
        over = threading.Event()
        try:
            large.submit(over.wait)
            data = picture(5000, 4000)
            job = decoder.job(data, HOW, 96, monotonic_ms() + 60_000)
            assert job.header.plain
            assert not job.quick
            waiting = decoder.decode(job, 0.0)
            small = decoder.job(picture(), HOW, 96, monotonic_ms() + 60_000)
            assert (await decoder.decode(small, 0.0)).pixels.shape == (96, 96, 3)
            assert not waiting.done()
            over.set()
            assert (await waiting).pixels.shape == (96, 96, 3)
        finally:
            over.set()
            workers.close()
            large.close()

    asyncio.run(main())


def test_small_pictures_are_not_quick_together_if_there_are_many(pool):
    workers = Workers("decode", 1)
    decoder = Decoder(workers, workers, pool, monotonic_ms, DecodeLimits())
    job = decoder.job(picture(500, 400), HOW, 96, 0.0)
    assert are_quick([job])
    assert not are_quick([job] * 64)
    workers.close()


def test_the_images_of_one_request_are_bounded_together():
    limits = DecodeLimits()
    header = read_header(picture(5000, 4000), frozenset({"JPEG"}))
    limits.check(header)
    limits.check_all([header] * 3 + [None])
    with pytest.raises(ImageTooLargeError, match="Send them in several"):
        limits.check_all([header] * 64)


def test_what_a_decoder_raises_costs_no_process(pool):
    """Of these sixty damaged images three once ended their helper with an error of Pillow's own."""

    async def main() -> None:
        for image in mutated(60, seed=23):
            with contextlib.suppress(CorruptImageError, ImageTooLargeError):
                await pool.decode(image, HOW, 64, cpu_ms=250)

    asyncio.run(main())
    assert pool.lost["exit"] == 0
