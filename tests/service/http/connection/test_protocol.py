"""What one connection may cost before anybody has asked for a key."""

import asyncio
import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from ipaddress import ip_network

import pytest
import uvicorn

from service.http.connection import protocol as protocol_module
from service.http.connection.connections import Connections, affordable_connections
from service.http.connection.protocol import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    bounded_protocol,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"


class Served:
    def __init__(self, port: int, server: uvicorn.Server, gate: threading.Event) -> None:
        self.port = port
        self.server = server
        self.gate = gate
        self.seen: list[int] = []

    @property
    def protocols(self) -> set:
        return self.server.server_state.connections

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.settimeout(10)
        return connection

    def until(self, condition: Callable[[], object], seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@contextmanager
def serving(
    headers_timeout_s: float = 5.0, keep_alive_s: int = 5, connections: Connections | None = None
) -> Iterator[Served]:
    gate = threading.Event()
    gate.set()

    async def app(scope, receive, send) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        served.seen.append(len(scope["headers"]))
        await asyncio.to_thread(gate.wait, 10)
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(
        app,
        http=bounded_protocol(headers_timeout_s, connections),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=keep_alive_s,
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    served = Served(listener.getsockname()[1], server, gate)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        served.until(lambda: server.started)
        yield served
    finally:
        gate.set()
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


LENGTH = (b"content-length", b"2")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(headers_timeout_s=60.0) as running:  # nothing is ended by it: bounds must do it
        yield running


def talk(served: Served, *pieces: bytes) -> bytes:
    """Send pieces until the server hangs up; return what it said."""
    with closing(served.connect()) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        said = b""
        with suppress(ConnectionError):
            while b"ok" not in said and (more := connection.recv(65536)):
                said += more
        return said


def test_a_request_as_large_as_allowed_is_served(served):
    headers = b"".join(b"x-%d: %s\r\n" % (i, b"v" * 600) for i in range(MAX_HEADERS - 1))
    assert talk(served, GET, headers, b"\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"a:\r\n" * (MAX_HEADERS + 1)],
        [b"a:\r\n" * 60_000] * 40,
        [b"a: " + b"b" * (MAX_HEADER_BYTES + 1) + b"\r\n\r\n"],
        [b"a: ", *[b"b" * 65_536] * 200],
        [b"b" * 65_536] * 200,
    ],
    ids=["many", "millions", "long", "endless", "endless name"],
)
def test_headers_are_bounded(served, pieces):
    before = len(served.seen)
    said = talk(served, GET, *pieces)
    # The kernel drops the answer if the client goes on sending; the request is never served.
    assert not said or said.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    served.until(lambda: not served.protocols)
    assert len(served.seen) == before


def test_the_answer_says_what_is_wrong(served):
    said = talk(served, GET, b"a:\r\n" * 200, b"\r\n")
    assert said.startswith(b"HTTP/1.1 431")
    assert b"urn:san-serve:problem:headers-too-large" in said
    assert b"At most 100 headers" in said


def test_a_url_is_bounded(served):
    said = talk(served, b"GET /" + b"a" * (MAX_HEADER_BYTES + 1) + b" HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 431")


def test_trailers_are_bounded(served):
    before = len(served.seen)
    talk(
        served,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        *[b"a:\r\n" * 10_000] * 40,
    )
    served.until(lambda: not served.protocols)
    assert len(served.seen) <= before + 1
    assert max(served.seen) <= MAX_HEADERS


def test_one_endless_trailer_is_bounded(served):
    talk(
        served,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: ",
        *[b"b" * 65_536] * 100,
    )
    served.until(lambda: not served.protocols)


def test_a_body_in_tiny_pieces_is_refused(served):
    before = len(served.seen)
    talk(
        served,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        *[b"1\r\na\r\n" * 10_000] * 10,
        b"0\r\n\r\n",
    )
    served.until(lambda: not served.protocols)
    assert all(count <= MAX_HEADERS for count in served.seen[before:])


def test_bytes_that_are_no_request_are_answered(served):
    said = talk(served, b"\x16\x03\x01 nonsense\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400")
    assert b"problem+json" in said


def test_a_few_pipelined_requests_are_answered(served):
    with closing(served.connect()) as connection:
        connection.sendall((GET + b"\r\n") * 8)
        said = b""
        while said.count(b"HTTP/1.1 200") < 8:
            more = connection.recv(65536)
            assert more
            said += more


def test_no_more_than_a_few_requests_wait_in_line():
    with serving() as served:
        served.gate.clear()
        with closing(served.connect()) as connection:
            with suppress(ConnectionError):
                connection.sendall((GET + b"\r\n") * 50_000)
            served.until(lambda: served.seen)  # all of it may be sent before any of it is read
            served.until(lambda: not served.protocols)
        served.gate.set()
        time.sleep(0.1)
        assert len(served.seen) <= MAX_PIPELINED + 1


@pytest.mark.parametrize("filler", [b"\r\n", b"\n\r\n\r\n"])
def test_empty_lines_keep_no_connection_alive(filler):
    quick = serving(headers_timeout_s=0.5, keep_alive_s=1)
    with quick as served, closing(served.connect()) as connection:
        assert b"ok" in talk_over(connection)
        with suppress(ConnectionError):
            for _ in range(20):
                connection.sendall(filler)
                time.sleep(0.1)
        served.until(lambda: not served.protocols)


def test_a_connection_that_says_nothing_is_closed():
    with serving(headers_timeout_s=0.3) as served, closing(served.connect()) as connection:
        assert connection.recv(10) == b""


def test_a_lost_connection_leaves_nothing_behind():
    with serving(keep_alive_s=600) as served:
        connection = served.connect()
        connection.sendall(GET + b"x: y\r\n\r\n")
        assert connection.recv(65536)
        [kept] = [weakref.ref(protocol) for protocol in served.protocols]
        # A reset, not a polite end: uvicorn leaves its timer running then.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        served.until(lambda: not served.protocols)

        def gone() -> bool:
            gc.collect()
            return kept() is None

        served.until(gone)


def test_one_address_gets_a_quarter_of_the_connections():
    connections = Connections(40)
    with serving(connections=connections) as served:
        held = [served.connect() for _ in range(12)]
        served.until(lambda: connections.refused == 2)
        assert len(connections) == 10
        assert b"ok" in talk_over(held[0])
        for connection in held:
            connection.close()
        served.until(lambda: len(connections) == 0)
        with closing(served.connect()) as again:
            assert b"ok" in talk_over(again)


def talk_over(connection: socket.socket) -> bytes:
    connection.sendall(GET + b"\r\n")
    said = b""
    while b"ok" not in said and (more := connection.recv(65536)):
        said += more
    return said


class FakeTransport:
    closed = False

    def close(self) -> None:
        self.closed = True


class FakeConnection:
    def __init__(self, *, is_idle: bool) -> None:
        self.is_idle = is_idle
        self.transport = FakeTransport()


def test_the_longest_idle_connection_makes_room():
    connections = Connections(8)
    busy = FakeConnection(is_idle=False)
    idle = [FakeConnection(is_idle=True) for _ in range(7)]
    assert all(connections.take(c, f"10.0.0.{i}") for i, c in enumerate([busy, *idle]))
    assert connections.take(FakeConnection(is_idle=True), "10.0.1.1")
    assert idle[0].transport.closed
    assert not busy.transport.closed
    assert not idle[1].transport.closed


def test_where_everybody_is_busy_the_newcomer_is_refused():
    connections = Connections(8)
    for i in range(8):
        assert connections.take(FakeConnection(is_idle=False), f"10.0.0.{i}")
    late = FakeConnection(is_idle=True)
    assert not connections.take(late, "10.0.1.1")
    connections.release(late, "10.0.1.1")
    connections.release(late, "10.0.1.1")
    assert len(connections) == 8


def test_descriptors_are_left_for_everything_else(monkeypatch):
    limits = [(64, 64)]
    monkeypatch.setattr("resource.getrlimit", lambda _: limits[-1])
    monkeypatch.setattr("resource.setrlimit", lambda _, pair: limits.append(pair))
    assert affordable_connections(4096) == 8
    limits[:] = [(1024, 1_000_000)]
    assert affordable_connections(4096) == 4096
    assert limits[-1] == (4096 + 128, 1_000_000)
    limits[:] = [(1024, 1024)]
    assert affordable_connections(4096) == 1024 - 128


def test_the_bounds_are_those_the_docs_name():
    assert (MAX_HEADERS, MAX_HEADER_BYTES, MAX_PIPELINED) == (100, 65_536, 16)
    assert protocol_module.FIRST_BYTE == "san.first_byte_ms"


class Later(Connections):
    """Whoever is refused is told after so many seconds."""

    pause = 3600.0

    def pause_s(self, _: str) -> float:
        return self.pause


def test_a_refusal_comes_later_if_there_were_many():
    later = Later()
    with serving(connections=later) as served:
        with closing(served.connect()) as connection:
            connection.settimeout(0.2)
            connection.sendall(b"nonsense\r\n\r\n" + GET + b"\r\n")
            with pytest.raises(TimeoutError):
                connection.recv(100)
            assert not served.seen, "what follows a refused request is not read"
            connection.sendall(GET + b"\r\n")
        served.until(lambda: not served.protocols or len(later) == 1)
        later.pause = 0.01
        said = talk(served, b"nonsense\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400")


def test_many_refusals_of_one_address_are_counted_but_not_those_behind_a_proxy():
    connections = Connections(trusted_proxies=(ip_network("10.0.0.0/8"),))
    assert [connections.pause_s("1.2.3.4") for _ in range(90)] == [0.0] * 90
    assert max(connections.pause_s("1.2.3.4") for _ in range(400)) == 0.25
    assert connections.pause_s("1.2.3.5") == 0
    assert {connections.pause_s("10.0.0.1") for _ in range(400)} == {0.0}
