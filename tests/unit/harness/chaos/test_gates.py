"""Each process has its own way to Kafka and Redis: parted is one of them, slow are all, and it passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.chaos.faults.schedule import MEMBERS, PARTITIONS, Fault, Kind
from tests.chaos.hops.gates import Gates
from tests.chaos.hops.hop import Hop
from tests.chaos.hops.weather import SLOW_S

LASTS_S = 60.0
SILENT_S = 0.1


@asynccontextmanager
async def echoes(gates: Gates) -> AsyncIterator[None]:
    """Behind every proxy."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    ports = {proxy.target_port for proxies in gates.before.values() for proxy in proxies}
    async with AsyncExitStack() as stack:
        for port in ports:
            await stack.enter_async_context(await asyncio.start_server(echo, "127.0.0.1", port))
        yield


async def answered_s(port: int) -> float:
    """How long a word takes there and back."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"word")
    assert await reader.readexactly(4) == b"word"
    writer.close()
    return loop.time() - start_s


async def struck(gates: Gates, fault: Fault) -> None:
    """It is carried out in a thread of its own."""
    gates.strike(fault)
    await told(gates, 1)


async def told(gates: Gates, count: int) -> None:
    while len(gates.lines) < count:  # noqa: ASYNC110 - a list of another thread
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", PARTITIONS, ids=lambda kind: kind.value)
async def test_who_is_parted_from_kafka_is_so_alone_and_hears_late(kind: Kind) -> None:
    """In whichever direction: nothing comes back. Redis is another way."""
    with Gates() as gates:
        async with echoes(gates):
            await struck(gates, Fault(0.0, kind, 2, LASTS_S))
            ports = [proxy.port for proxy in gates.before[Hop.KAFKA]]
            parted = asyncio.create_task(answered_s(ports[2]))
            for number in {*range(MEMBERS)} - {2}:
                await answered_s(ports[number])
            await answered_s(gates.before[Hop.REDIS][2].port)
            await asyncio.wait([parted], timeout=SILENT_S)
            assert not parted.done()
            gates.relieve()
            assert await parted >= SILENT_S
    assert [line.what for line in gates.lines] == [f"{kind} of process 2 for 60.0 s", f"{kind} over"]


@pytest.mark.parametrize(("kind", "hop"), [(Kind.SLOW_KAFKA, Hop.KAFKA), (Kind.SLOW_REDIS, Hop.REDIS)])
async def test_what_is_slow_is_slow_for_everybody_and_the_other_is_not(kind: Kind, hop: Hop) -> None:
    """And over by itself."""
    with Gates() as gates:
        async with echoes(gates):
            await struck(gates, Fault(0.0, kind, 0, 2.5 * SLOW_S))
            slow = [answered_s(proxy.port) for proxy in gates.before[hop]]
            assert min(await asyncio.gather(*slow)) >= 2 * SLOW_S
            await told(gates, 2)
            quick = [answered_s(proxy.port) for proxies in gates.before.values() for proxy in proxies]
            assert min(await asyncio.gather(*quick)) < 2 * SLOW_S
    assert gates.carried_bytes == 8 * (MEMBERS + 2 * MEMBERS)
