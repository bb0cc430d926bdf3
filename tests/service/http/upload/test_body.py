"""A client's leaving, told by our protocol or, behind another server, by the next message."""

import asyncio

import pytest

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
