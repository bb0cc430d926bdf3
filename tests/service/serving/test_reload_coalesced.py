import asyncio

from service.serving.service import Service


class Reloading(Service):
    """A service of which only its reloads are real."""

    def __init__(self) -> None:
        self._next_reload = None
        self._reloading = asyncio.Lock()
        self.begun = 0
        self.gate = asyncio.Event()

    async def _reload(self):
        async with self._reloading:
            self._next_reload = None
            self.begun += 1
            await self.gate.wait()
            return self.begun


def test_however_many_ask_one_reload_follows_the_one_under_way():
    async def story():
        service = Reloading()
        first = asyncio.create_task(service.reload())
        await asyncio.sleep(0.01)
        more = [asyncio.create_task(service.reload()) for _ in range(8)]
        await asyncio.sleep(0.01)
        more[0].cancel()  # a client that leaves takes nobody's reload away
        service.gate.set()
        assert await first == 1
        found = await asyncio.gather(*more, return_exceptions=True)
        assert found[1:] == [2] * 7
        assert service.begun == 2

    asyncio.run(story())
