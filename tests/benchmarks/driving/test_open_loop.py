"""The load generator against a server that does what each request says."""

import asyncio
import threading

import pytest

from benchmarks.driving.open_loop import BROKEN, GAVE_UP, closed_loop, open_loop
from benchmarks.driving.wire import post
from benchmarks.servers.processes import free_port


async def _serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if path == "/never":
                await asyncio.sleep(60)
            if path == "/break":
                break
            extra = b"Connection: close\r\n" if path == "/close" else b""
            status = b"429 Busy" if path == "/busy" else b"200 OK"
            writer.write(b"HTTP/1.1 " + status + b"\r\n" + extra + b"Content-Length: 2\r\n\r\nok")
            await writer.drain()
            if path == "/close":
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@pytest.fixture(scope="module")
def port():
    port = free_port()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_serve_one, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield port

    async def leave() -> None:
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(leave(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_every_arrival_is_sent_and_counted_once(port):
    times = [n / 500 for n in range(100)]
    samples = open_loop(port, times, [post("/ok", b"x" * 50_000)])
    assert sorted(sample.due for sample in samples) == times
    assert {sample.status for sample in samples} == {200}
    assert all(sample.answer.body == b"ok" for sample in samples)


@pytest.mark.parametrize(
    ("path", "status"), [("/busy", 429), ("/never", GAVE_UP), ("/break", BROKEN), ("/close", 200)]
)
def test_what_becomes_of_a_request_is_told_apart(port, path, status):
    samples = open_loop(port, [0.0, 0.01, 0.02], [post(path, b"x")], give_up_s=0.2)
    assert [sample.status for sample in samples] == [status] * 3
    assert not any(sample.on_time(1e9) for sample in samples) or status == 200


def test_nobody_listens(port):
    samples = open_loop(free_port(), [0.0], [post("/ok", b"x")])
    assert [sample.status for sample in samples] == [BROKEN]


@pytest.mark.parametrize("path", ["/ok", "/close"])
def test_a_closed_loop_sends_as_many_as_it_is_told(port, path):
    samples, took = closed_loop(port, [post(path, b"x")], clients=3, seconds=30, count=50)
    assert len(samples) == 50
    assert {sample.status for sample in samples} == {200}
    assert 0 < took < 30


def test_a_closed_loop_ends_in_time(port):
    samples, took = closed_loop(port, [post("/ok", b"x")], clients=2, seconds=0.2)
    assert len(samples) > 2
    assert took >= 0.2
