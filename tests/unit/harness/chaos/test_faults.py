"""A chaos run draws its faults from a seed, never more at a time than the system must survive, and each fault does what
its name says.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from tests.chaos.faults.clocks import READ_EVERY_S, Clock, turn
from tests.chaos.faults.schedule import PARTITIONS, Kind, counts_for, draw, groups, parse_faults
from tests.chaos.hops.proxy import SLOW_S, Proxy

CLIENTS = 40
PAYLOAD = bytes(range(256)) * 16


@given(seed=st.integers(0, 2**32), minutes=st.floats(0.5, 60), brokers=st.sampled_from([1, 3]))
def test_the_same_seed_gives_the_same_faults(seed: int, minutes: float, brokers: int) -> None:
    """Faults are in order of time, as many as requested, within the run."""
    counts, among = counts_for(minutes, brokers=brokers), groups(clients=CLIENTS, brokers=brokers)
    faults = draw(seed, minutes * 60, counts, among)
    assert faults == draw(seed, minutes * 60, counts, among)
    assert faults == sorted(faults, key=lambda fault: fault.at_s)
    assert {kind: sum(fault.kind is kind for fault in faults) for kind in Kind} == counts
    assert all(0 < fault.at_s < minutes * 60 for fault in faults)


@given(seed=st.integers(0, 2**32), brokers=st.sampled_from([1, 3]))
def test_only_one_process_of_a_kind_is_down_at_a_time(seed: int, brokers: int) -> None:
    """Of two workers, two gateways and three brokers, the next is hit after the previous one has recovered."""
    among = groups(clients=CLIENTS, brokers=brokers)
    faults = draw(seed, 120, parse_faults(",".join(f"{kind}=2" for kind in Kind)), among)
    for group in among:
        of_group = [fault for fault in faults if fault.kind in group.kinds]
        for before, after in pairwise(of_group):
            assert after.at_s - before.at_s >= before.down_s + group.recovery_s - 0.002
        assert all(0 <= fault.target < group.targets for fault in of_group)
        assert all(group.down_s[0] <= fault.down_s <= group.down_s[1] for fault in of_group)


@pytest.mark.parametrize("text", ["worker=", "worker=-1", "printer=1"])
def test_unreadable_faults_are_named(text: str) -> None:
    with pytest.raises(SettingsError, match="write kind=count"):
        parse_faults(text)


def test_a_faked_clock_deviates_as_its_file_says(tmp_path: Path) -> None:
    now_s = 100.0
    clock = Clock(tmp_path / "worker-0.clock", lambda: 7 * 10**9, lambda: now_s)
    for off_s in (5.0, -5.0, 0.0):
        turn(clock.file, off_s)
        now_s += 2 * READ_EVERY_S
        assert (clock.time(), clock.time_ns()) == (7.0 + off_s, (7 + off_s) * 10**9)


# --- the proxy in front of a server


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1_000):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def before(serve: Callable[..., Any] = echo) -> AsyncIterator[Proxy]:
    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy,
    ):
        yield proxy


async def returned(proxy: Proxy, payload: bytes = b"again") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(payload)
    writer.write_eof()
    back = await reader.read(-1)
    writer.close()
    return back


@pytest.mark.parametrize(
    ("kind", "least_s"), [(Kind.SLOW_REDIS, 2 * SLOW_S), (Kind.BANDWIDTH, len(PAYLOAD) / 32_000), (Kind.SLICER, 0.0)]
)
async def test_delayed_throttled_and_split_bytes_arrive_complete_in_order_and_late(kind: Kind, least_s: float) -> None:
    loop = asyncio.get_running_loop()
    async with before() as proxy:
        proxy.worsen(kind)
        start_s = loop.time()
        assert await returned(proxy, PAYLOAD) == PAYLOAD
        assert loop.time() - start_s >= least_s


@pytest.mark.parametrize("kind", PARTITIONS, ids=lambda kind: kind.value)
async def test_a_one_way_partition_delays_its_direction_and_passes_the_other(kind: Kind) -> None:
    arrived = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.readexactly(4)
        arrived.set()
        await reader.read()
        writer.close()

    async with before(greet) as proxy:
        proxy.worsen(kind)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"ping")
        greeted, told = asyncio.create_task(reader.readexactly(5)), asyncio.create_task(arrived.wait())
        passing = {Kind.PARTITION: set(), Kind.PARTITION_OUT: {greeted}, Kind.PARTITION_IN: {told}}[kind]
        for passes in passing:
            await passes
        held = {greeted, told} - passing
        await asyncio.wait(held, timeout=0.05)
        assert not any(task.done() for task in held)
        proxy.clear(kind)
        await asyncio.gather(*held)
        writer.close()


@pytest.mark.parametrize("kind", [Kind.RESET, Kind.SLOW_CLOSE])
async def test_a_cut_closes_every_connection_and_accepts_new_ones(kind: Kind) -> None:
    """Bytes are in transit as well; the peer sees a reset as a reset and a slow close as an end of stream."""
    async with before() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        if kind is Kind.RESET:
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
        else:
            proxy.hang_up(on_server=True, told_late_s=0.05)
            assert await reader.read() == b""
        assert proxy.num_cut == 1
        writer.close()
        assert await returned(proxy) == b"again"
