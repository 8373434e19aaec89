"""Each process has its own way to Kafka and Redis: parted is one of them, slow are all, and it passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.faults.schedule import MEMBERS, PARTITIONS, Fault, Kind
from tests.chaos.hops.gates import Gates, kafka_listeners
from tests.chaos.hops.proxy import SLOW_S


@asynccontextmanager
async def echoes(gates: Gates) -> AsyncIterator[None]:
    """Behind every proxy."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with AsyncExitStack() as stack:
        for port in {proxy.target_port for proxy in [*gates.kafka, *gates.redis]}:
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


async def told(gates: Gates, count: int) -> None:
    """A fault is carried out, and ends, in a thread of its own."""
    while len(gates.lines) < count:  # noqa: ASYNC110 - a list of another thread
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", PARTITIONS, ids=lambda kind: kind.value)
async def test_who_is_parted_from_kafka_is_so_alone_and_hears_late(kind: Kind) -> None:
    """In whichever direction: nothing comes back. Redis is another way."""
    with Gates() as gates:
        async with echoes(gates):
            gates.strike(Fault(0.0, kind, 2, 0.5))
            await told(gates, 1)
            parted = asyncio.create_task(answered_s(gates.kafka[2].port))
            others = [*gates.kafka[:2], *gates.kafka[3:], gates.redis[2]]
            await asyncio.gather(*(answered_s(proxy.port) for proxy in others))
            if len(gates.lines) == 1:  # else this machine stood still
                assert not parted.done()
            await parted
    assert [line.what for line in gates.lines] == [f"{kind} of process 2 for 0.5 s", f"{kind} over"]


@pytest.mark.parametrize("kind", [Kind.SLOW_KAFKA, Kind.SLOW_REDIS], ids=lambda kind: kind.value)
async def test_what_is_slow_is_slow_for_everybody_until_it_is_over(kind: Kind) -> None:
    with Gates() as gates:
        async with echoes(gates):
            gates.strike(Fault(0.0, kind, 0, 2.5 * SLOW_S))
            await told(gates, 1)
            met = gates.kafka if kind is Kind.SLOW_KAFKA else gates.redis
            assert min(await asyncio.gather(*(answered_s(proxy.port) for proxy in met))) >= 2 * SLOW_S
            await told(gates, 2)
            quick = [answered_s(proxy.port) for proxy in [*gates.kafka, *gates.redis]]
            assert min(await asyncio.gather(*quick)) < 2 * SLOW_S
    assert gates.carried_bytes == 8 * (MEMBERS + 2 * MEMBERS)


@given(st.lists(st.integers(1_024, 65_535), min_size=2, max_size=12, unique=True))
def test_a_listener_names_its_own_proxy(ports: list[int]) -> None:
    """Of as many as there are ways; the node's own port is its own address, and no name has two protocols."""
    port, controller, *rest = ports
    ways = list(zip(rest[::2], rest[1::2], strict=False))
    lines = kafka_listeners(port, controller, ways)
    listens, told = (
        dict(entry.split("://") for entry in lines[name].split(",")) for name in ("listeners", "advertised.listeners")
    )
    assert listens.pop("CONTROLLER") == f"127.0.0.1:{controller}"
    assert listens.keys() == told.keys()
    assert listens["PLAINTEXT"] == told["PLAINTEXT"] == f"127.0.0.1:{port}"
    by_way = {listens[name]: told[name] for name in listens if name != "PLAINTEXT"}
    assert by_way == {f"127.0.0.1:{own}": f"127.0.0.1:{proxy}" for own, proxy in ways}
    protocols = dict(entry.split(":") for entry in lines["listener.security.protocol.map"].split(","))
    assert protocols == dict.fromkeys([*listens, "CONTROLLER"], "PLAINTEXT")
