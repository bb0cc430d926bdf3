import asyncio

from service.runtime.turns import turn


def test_services_that_share_a_directory_take_turns(tmp_path):
    async def scene():
        inside, most = 0, 0

        async def measure():
            nonlocal inside, most
            async with turn(tmp_path / "new"):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        await asyncio.gather(*(measure() for _ in range(3)))
        assert most == 1

    asyncio.run(scene())


def test_without_a_directory_that_can_be_written_nobody_waits(tmp_path):
    (tmp_path / "file").write_text("")

    async def scene():
        for directory in (None, tmp_path / "file" / "below"):
            async with turn(directory), turn(directory):
                pass

    asyncio.run(scene())
