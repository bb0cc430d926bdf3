"""Attacks on the connection and the request, below and around the image."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from benchmarks.driving.photo import photo
from tests.campaign.images import (
    attack,
    bmp_of_runs,
    jpeg,
    photograph_of_twenty_megapixels,
    webp_of_one_colour,
)

ATTACKER = "127.0.0.2"
"""Another address than the polite client's: limits are counted by client."""

_BIND_ADDRESS_NO_PORT = 24
"""Linux's `IP_BIND_ADDRESS_NO_PORT`, which the socket module has from Python 3.12 on only."""

Attack = Callable[[int, float], None]
"""Attacks a port until a moment of `time.monotonic()`."""

attempts = itertools.count()
"""Counts every connection that is opened."""

statuses: Counter[int] = Counter()
"""What came back; 0 where a connection was closed without an answer."""


def connect(port: int, timeout_s: float = 30.0) -> socket.socket:
    """A connection from the attacker's address."""
    next(attempts)
    made = socket.socket()
    made.settimeout(timeout_s)
    # Its port is chosen with the connection's other end in mind: ports that are bound before that
    # are lost to everybody for a minute, and the polite client would soon find none.
    made.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
    try:
        made.bind((ATTACKER, 0))
        made.connect(("127.0.0.1", port))
    except OSError:
        made.close()
        raise
    return made


def post(port: int, body: bytes, path: str = "/classify", **headers: str) -> int:
    """Send one request; its status, or 0 if the connection was closed."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    status = 0
    try:
        connection.sock = connect(port, 60.0)
        connection.request("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        response.read()
        status = response.status
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    statuses[status] += 1
    return status


def _send(port: int, *pieces: bytes) -> None:
    answer = b""
    with suppress(OSError), connect(port) as connection:
        with suppress(OSError):  # closed by the service: it may have said why
            for piece in pieces:
                connection.sendall(piece)
        connection.settimeout(1)
        answer = connection.recv(65536)
    _note(answer)


def _note(answer: bytes) -> None:
    """Count the status of a raw answer."""
    statuses[int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0] += 1


def _until(end: float, work: Callable[[], object]) -> None:
    while time.monotonic() < end:
        work()


def image_flood(name: str) -> Attack:
    """One image again and again."""
    data = attack(name)
    return lambda port, end: _until(end, lambda: post(port, data))


def many_in_one(make: Callable[[], bytes], count: int = 60) -> Attack:
    """As many costly images in one inference request."""

    def work(port: int, end: float) -> None:
        image = make()
        raw = (struct.pack("<I", len(image)) + image) * count
        tensor = {
            "name": "image",
            "datatype": "BYTES",
            "shape": [count],
            "parameters": {"binary_data_size": len(raw)},
        }
        text = json.dumps({"inputs": [tensor]}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/resolutions")
        path = f"/v2/models/{json.loads(connection.getresponse().read())['model']}/infer"
        connection.close()
        length = str(len(text))
        _until(
            end,
            lambda: post(port, text + raw, path, inference_header_content_length=length),
        )

    return work


START = b"POST /classify HTTP/1.1\r\nHost: localhost\r\n"


def empty_headers(port: int, end: float) -> None:
    """20 MB of headers without a value."""
    _until(end, lambda: _send(port, START, *[b"a:\r\n" * 16_000] * 320))


def one_endless_header(port: int, end: float) -> None:
    """One header of 60 MB."""
    _until(end, lambda: _send(port, START, b"a: ", *[b"b" * 65_536] * 1000))


def pipelined(port: int, end: float) -> None:
    """12 MB of requests whose answers nobody reads."""
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    _until(end, lambda: _send(port, *[one * 2000] * 150))


def announced(port: int, end: float) -> None:
    """Bodies that are announced and never sent."""
    held = []
    for _ in range(40):
        with suppress(OSError):
            connection = connect(port)
            connection.sendall(START + b"Content-Length: 19000000\r\n\r\n")
            held.append(connection)
    time.sleep(max(0.0, end - time.monotonic()))
    for connection in held:
        connection.close()


def tiny_chunks(port: int, end: float) -> None:
    """A body in a million chunks of one byte."""
    head = START + b"Transfer-Encoding: chunked\r\n\r\n"
    _until(end, lambda: _send(port, head, *[b"1\r\na\r\n" * 10_000] * 100))


def form_of_parts(port: int, end: float) -> None:
    """20 MB of tiny parts with empty headers."""
    part = b"--b\r\n" + b"a:\r\n" * 8 + b"\r\n\r\n"
    body = part * (20_000_000 // len(part))
    _until(end, lambda: post(port, body, content_type="multipart/form-data; boundary=b"))


def form_of_dashes(port: int, end: float) -> None:
    """20 MB in which every line begins like a boundary."""
    body = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\n' + b"\r\n--" * 4_900_000
    _until(end, lambda: post(port, body, content_type="multipart/form-data; boundary=b"))


def idle_connections(count: int) -> Attack:
    """So many connections that say nothing, and some that say empty lines."""

    def work(port: int, end: float) -> None:
        held = []
        for i in range(count):
            with suppress(OSError):
                connection = connect(port)
                if i % 2:
                    connection.sendall(b"\r\n")
                held.append(connection)
        while time.monotonic() < end:
            for connection in held[::2]:
                with suppress(OSError):
                    connection.sendall(b"\r\n")
            time.sleep(0.5)
        for connection in held:
            connection.close()

    return work


def slow_headers(port: int, end: float) -> None:
    """Many connections that send a header's byte now and then."""
    _trickle(port, end, START + b"a: ", b"b")


def slow_bodies(port: int, end: float) -> None:
    """Many connections that send a body's byte now and then."""
    _trickle(port, end, START + b"Content-Length: 19000000\r\n\r\n", b"\xff")


def _trickle(port: int, end: float, beginning: bytes, drop: bytes) -> None:
    held: list[socket.socket] = []
    while time.monotonic() < end:
        while len(held) < 100:
            with suppress(OSError):
                held.append(connect(port))
                held[-1].sendall(beginning)
        for connection in tuple(held):
            try:
                connection.sendall(drop)
            except OSError:
                held.remove(connection)
                connection.close()
        time.sleep(0.2)
    for connection in held:
        connection.close()


def clients_that_leave(name: str, after_s: float) -> Attack:
    """Costly images whose client does not wait for the answer."""

    def work(port: int, end: float) -> None:
        image = attack(name)
        head = START + f"Content-Length: {len(image)}\r\n\r\n".encode()

        def once() -> None:
            with suppress(OSError), connect(port) as connection:
                connection.sendall(head + image)
                time.sleep(after_s)

        _until(end, once)

    return work


def flood(port: int, end: float) -> None:
    """Ordinary photographs on 32 connections, the next one as soon as the last is answered."""
    body = photo()
    request = START + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    held: list[socket.socket] = []
    while time.monotonic() < end:
        with suppress(OSError):
            while len(held) < 32:
                held.append(connect(port))
        for connection in tuple(held):
            try:
                connection.sendall(request)
            except OSError:
                held.remove(connection)
        for connection in tuple(held):
            try:
                answer = connection.recv(65536)
            except OSError:
                answer = b""
            _note(answer)
            if not answer or b"connection: close" in answer.lower():
                held.remove(connection)
                connection.close()
    for connection in held:
        connection.close()


def content_types(value: str) -> Attack:
    """A Content-Type that is long to read."""
    return lambda port, end: _until(end, lambda: post(port, jpeg(), content_type=value))


def reloads(port: int, end: float) -> None:
    """Swaps of the bundle, as a program on the same machine can ask for, whose client leaves."""
    ask = b"POST /admin/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"

    def once() -> None:
        with suppress(OSError), connect(port) as connection:
            connection.sendall(ask)
            time.sleep(0.3)

    _until(end, once)


def warm_ups(port: int, end: float) -> None:
    """Points made ready without a key, as a program on the same machine can ask for."""
    rng = random.Random(3)

    def once() -> None:
        post(port, b"", f"/resolutions/{rng.randrange(32, 513)}/warm")
        post(port, b"", f"/resolutions/{rng.randrange(32, 513)}/warm?mode=ideal")

    _until(end, once)


def pins(port: int, end: float) -> None:
    """Every resolution from 32 to 512, at random."""
    rng = random.Random(1)
    _until(end, lambda: post(port, jpeg(), f"/classify?resolution={rng.randrange(32, 513)}"))


def pins_without_a_budget(port: int, end: float) -> None:
    """The largest resolution, again and again."""
    _until(end, lambda: post(port, jpeg(), "/classify?resolution=512"))


def budgets_of_ten_thousand_digits(port: int, end: float) -> None:
    """Budgets that are long to keep."""
    rng = random.Random(2)
    _until(
        end,
        lambda: post(port, jpeg(), X_Budget_Ms="0" * 30_000 + str(rng.randrange(10**9))),
    )


WIRE: dict[str, Attack] = {
    "headers without a value": empty_headers,
    "one endless header": one_endless_header,
    "pipelined requests": pipelined,
    "announced bodies": announced,
    "tiny chunks": tiny_chunks,
    "form of parts": form_of_parts,
    "form of dashes": form_of_dashes,
    "idle connections": idle_connections(2000),
    "form with a long boundary": content_types("multipart/form-data; boundary=" + "b" * 300),
    "form of semicolons": content_types("multipart/form-data" + ";" * 60_000),
    "photographs without end": flood,
    "60 bombs in one request": many_in_one(webp_of_one_colour),
    "60 bmps of runs in one": many_in_one(bmp_of_runs),
    "60 large photographs in one": many_in_one(photograph_of_twenty_megapixels),
    "60 small photographs in one": many_in_one(photo),
    "slow headers": slow_headers,
    "slow bodies": slow_bodies,
    "clients that leave": clients_that_leave("webp within limits", 0.05),
    "clients that leave later": clients_that_leave("ppm of comments, 8 MB", 1.0),
    "warm-ups": warm_ups,
    "reloads": reloads,
    "pins of 512 px": pins_without_a_budget,
    "pins of all resolutions": pins,
    "long budgets": budgets_of_ten_thousand_digits,
}
