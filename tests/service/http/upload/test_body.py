"""A body that is refused by its beginning; a client's leaving, told by our protocol or, behind
another server, by the next message."""

import asyncio
import io
import re
import socket

import pytest
from PIL import Image

from san_core.errors import UnsupportedFormatError
from service.http.access.limits import ClientLimits
from service.http.connection.protocol import CONNECTION
from service.http.upload.body import Incoming
from service.request.client import CLIENT

LIMITS = ClientLimits(max_requests=8, max_bytes=1000, share=1.0)


class Connection:
    on_lost = None

    def watch(self, on_lost):
        self.on_lost = on_lost

    async def lose(self):
        self.on_lost()
        await for_ever()


async def serve(connection, receive, work):
    """Watch over some work, as a route does; tell whether the client was gone."""
    scope = {"headers": [], CLIENT: "a"} | ({} if connection is None else {CONNECTION: connection})
    incoming = Incoming(scope, receive, LIMITS, max_bytes=10, timeout_s=5)

    async def watched():
        incoming.watch()
        await work

    await incoming.serve(watched())
    return incoming.gone


async def never():
    await asyncio.Event().wait()


async def for_ever():
    await asyncio.sleep(60)


def run(main):
    return asyncio.run(asyncio.wait_for(main, 10))


def test_who_leaves_is_served_no_longer():
    async def main():
        connection = Connection()
        assert await serve(connection, never, connection.lose())
        assert connection.on_lost is None

    run(main())


def test_behind_another_server_the_next_message_tells():
    async def left():
        return {"type": "http.disconnect"}

    assert run(serve(None, left, for_ever()))


@pytest.mark.parametrize("connection", [None, Connection()])
def test_who_stays_is_served_to_the_end(connection):
    assert not run(serve(connection, never, asyncio.sleep(0.05)))


def test_the_next_request_of_a_connection_is_not_forgotten_with_the_last():
    async def main():
        connection = Connection()
        first = Incoming(
            {"headers": [], CLIENT: "a", CONNECTION: connection},
            never,
            LIMITS,
            max_bytes=1,
            timeout_s=1,
        )
        second = Incoming(
            {"headers": [], CLIENT: "a", CONNECTION: connection},
            never,
            LIMITS,
            max_bytes=1,
            timeout_s=1,
        )
        first.watch()
        second.watch()
        first.close()
        assert connection.on_lost is not None
        second.close()
        assert connection.on_lost is None

    run(main())


def pieces_of(body, size=50_000):
    """What a server hands on of a body, piece by piece, and how much of it was taken."""
    taken = []

    async def receive():
        at = sum(taken)
        taken.append(len(body[at : at + size]))
        return {
            "type": "http.request",
            "body": body[at : at + size],
            "more_body": at + size < len(body),
        }

    return receive, taken


def read(body, look):
    receive, taken = pieces_of(body)

    async def main():
        roomy = ClientLimits(max_requests=8, max_bytes=10_000_000, share=1.0)
        scope = {"headers": [], CLIENT: "a"}
        return await Incoming(scope, receive, roomy, max_bytes=5_000_000, timeout_s=5).read(look)

    return run(main()), taken


def test_a_body_is_looked_at_twice_while_it_arrives():
    seen = []
    body = bytes(2_000_000)
    assert read(body, lambda beginning: seen.append(len(beginning)))[0] == body
    assert seen == [100_000, 1_000_000]


def test_a_small_body_is_not_looked_at():
    seen = []
    read(bytes(90_000), seen.append)
    assert not seen


def test_what_is_refused_by_its_beginning_is_not_read_to_its_end():
    def refuse(_):
        raise UnsupportedFormatError("not this")

    receive, taken = pieces_of(bytes(2_000_000))

    async def main():
        roomy = ClientLimits(max_requests=8, max_bytes=10_000_000, share=1.0)
        scope = {"headers": [], CLIENT: "a"}
        incoming = Incoming(scope, receive, roomy, max_bytes=5_000_000, timeout_s=5)
        with pytest.raises(UnsupportedFormatError):
            await incoming.read(refuse)

    run(main())
    assert sum(taken) == 100_000


def statuses(port, beginning, size=2_000_000):
    """Send the beginning of a body and read the answer, then the rest and one more request."""
    post = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
    probe = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", port), timeout=15) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(post + beginning)
        first = answers.readline()
        if first.startswith(b"HTTP/1.1 408"):
            return [first[9:12]]
        connection.sendall(bytes(size - len(beginning)) + probe)
        return re.findall(rb"HTTP/1.1 (\d+)", first + answers.read())


FILL = b"\xff\xd8" + b"\xff" * 150_000
PGM = b"P5\n4000 4000\n254\n" + bytes(150_000)
WEBP = b"RIFF\x80\x84\x1e\x00WEBPVP8L\x74\x84\x1e\x00\x2f\xfe\xff\xff\x0f" + bytes(150_000)


@pytest.mark.parametrize(
    ("beginning", "status"),
    [(FILL, b"400"), (PGM, b"413"), (WEBP, b"413"), (b"8BPS" + bytes(150_000), b"415")],
)
def test_the_service_answers_an_image_by_its_beginning(running, beginning, status):
    assert statuses(running.port, beginning) == [status, b"200"]


def test_what_may_still_become_a_form_is_waited_for(running):
    assert statuses(running.port, bytes(150_000)) == [b"408"]


def test_a_large_photograph_is_read_to_its_end(client):
    file = io.BytesIO()
    Image.effect_noise((1600, 1200), 80).convert("RGB").save(file, "JPEG", quality=97)
    assert len(file.getvalue()) > 1_200_000
    assert client.post("/classify", content=file.getvalue()).status_code == 200
