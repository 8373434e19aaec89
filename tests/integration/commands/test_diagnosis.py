"""`replyline diagnose` on a running system with one fault at a time names that fault."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from ops.operate.diagnose.look import _page, _socket, look, targets_of
from ops.operate.diagnose.rules import found_in
from ops.operate.diagnose.system import Role
from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import ServiceError
from shared.errors import SettingsError
from shared.settings import Settings
from tests.chaos.hops.proxy import Proxy
from tests.integration.support.crowds import small_socket
from tests.support.hostile.one_answer import saying
from tests.support.hostile.poison_records import packed
from tests.support.reliability import Reliability
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import JSON, MSGPACK, Client

MANY = 1_000_000
LONGEST_LOOK_S = 60.0


@pytest.fixture(scope="module")
def own_broker(kafka_broker: KafkaBroker, pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """A broker that a test here may stop; if none will, the shared one."""
    if not pytestconfig.getoption("--reliability"):
        yield kafka_broker
        return
    try:
        with KafkaBroker() as broker:
            yield broker
    except ServiceError as error:
        pytest.fail(f"{error}", pytrace=False)


@dataclass(slots=True, kw_only=True)
class Stage:
    """A healthy system and its checks; `looks_s` is the duration of each check, over all systems like it."""

    system: System
    broker: KafkaBroker
    gateway: Service
    worker: Service
    like: Callable[..., Awaitable["Stage"]]
    looks_s: list[float]
    seconds: float = 4.0

    async def bottleneck(self, *, url: str | None = None, extra: Sequence[str] = ()) -> list[str]:
        """Return the causes found, the first of which is the verdict."""
        settings = Settings.model_validate(
            {
                "kafka": {
                    "bootstrap_servers": self.system.bootstrap,
                    "topic_prefix": self.system.prefix,
                    "request_timeout_ms": 2_000,
                },
                "redis": {"url": self.system.redis.url, "timeout_ms": 1_000},
            }
        )
        processes = [
            (Role.GATEWAY, f"http://{self.gateway.operators}/metrics"),
            (Role.WORKER, f"http://{self.worker.operators}/metrics"),
            *((Role.WORKER, address) for address in extra),
        ]
        start_s = time.monotonic()
        facts = await look(settings, processes, url=url or self.gateway.ws, seconds=self.seconds)
        self.looks_s.append(time.monotonic() - start_s)
        return list(found_in(facts))


@pytest_asyncio.fixture(scope="module")
async def stage(make_system: MakeSystem, own_broker: KafkaBroker) -> Stage:
    looks_s: list[float] = []

    async def make(**settings: object) -> Stage:
        system = await make_system(
            broker=own_broker.bootstrap,
            worker__max_length=8_192,
            worker__slots=4,
            worker__buckets="short,medium",
            worker__reply_interval_ms=0,
            worker__fake_decode_ms_per_step=2,
            limits__max_output_tokens=4_000,
            limits__max_input_tokens=4_000,
            kv__host_mib=0,
            admission__enabled=False,
            promise__first_token_ms=20_000,
            promise__deadline_ms=60_000,
            gateway__messages_per_minute=MANY,
            kafka__request_timeout_ms=2_000,
            **settings,
        )
        gateway, worker = await asyncio.gather(system.gateway().ready(), system.worker().ready())
        return Stage(system=system, broker=own_broker, gateway=gateway, worker=worker, like=make, looks_s=looks_s)

    return await make()


@asynccontextmanager
async def asking(stage: Stage, clients: int, text: str, **fields: object) -> AsyncIterator[None]:
    """Start this many clients that ask one question after the other."""

    async def ask() -> None:
        async with Client.connect(stage.gateway.ws, MSGPACK) as client:
            while True:
                await client.ask(text, **fields)

    tasks = [asyncio.create_task(ask()) for _ in range(clients)]
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def nothing(stage: Stage) -> list[str]:
    """The control."""
    async with asking(stage, 1, "Where is my parcel?", max_output_tokens=20):
        return await stage.bottleneck()


async def network(stage: Stage) -> list[str]:
    host, _, port = stage.gateway.address.partition(":")
    async with Proxy(host, int(port), delay_s=0.1) as far:
        return await stage.bottleneck(url=f"ws://{host}:{far.port}/ws")


async def clients(stage: Stage) -> list[str]:
    stage = await stage.like(gateway__buffer_close_bytes=2_048, gateway__slow_consumer_s=0.5)
    async with Client.connect(stage.gateway.ws, JSON, sock=await small_socket(stage.gateway)) as client:
        client.reading.clear()
        await client.create("Tell me all", max_output_tokens=3_000)
        await eventually(lambda: happened(stage, "replyline_gateway_deltas_merged_total"))
        return await stage.bottleneck()


async def happened(stage: Stage, counter: str, **labels: str) -> bool:
    return await stage.gateway.metric(counter, **labels) > 0


async def gateway_loop(stage: Stage) -> list[str]:
    """Its CPU time is taken away, as on a full machine."""

    async def hold_up() -> None:
        while True:
            stage.gateway.pause()
            await asyncio.sleep(0.25)
            stage.gateway.resume()
            await asyncio.sleep(0.1)

    holding = asyncio.create_task(hold_up())
    try:
        return await stage.bottleneck()
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        stage.gateway.resume()


async def queue(stage: Stage) -> list[str]:
    """Another service writes to a bucket that no worker reads."""
    for number in range(20):
        await stage.system.produce("chat.requests.long", packed(id=f"unread-{number}", max_output_tokens=3))
    return await stage.bottleneck()


async def decode(stage: Stage) -> list[str]:
    async with asking(stage, 8, "Tell me all", max_output_tokens=400):
        return await stage.bottleneck()


async def prefill(stage: Stage) -> list[str]:
    """A slow engine, and long questions."""
    slow = await stage.like(worker__fake_prefill_ms_per_token=4)
    async with asking(slow, 12, "word " * 40, max_output_tokens=2):
        return await slow.bottleneck()


async def kv(stage: Stage) -> list[str]:
    """KV in Redis is damaged between a conversation's turns."""
    stage = await stage.like(worker__fake_prefill_ms_per_token=1)  # so that loading pays

    async def damage() -> None:
        async for key in redis.scan_iter("*/sess*:kv"):
            for name, value in (await redis.hgetall(key)).items():
                await redis.hset(key, name, value[:-100] + bytes(100))

    async def talk() -> None:
        async with Client.connect(stage.gateway.ws, MSGPACK) as client:
            while True:
                await client.ask("word " * 20, max_output_tokens=4)
                await damage()

    async with Redis.from_url(stage.system.redis.url) as redis:
        talking = [asyncio.create_task(talk()) for _ in range(10)]  # more than the slots
        await asyncio.sleep(1)
        try:
            return await stage.bottleneck()
        finally:
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)


async def gpu_memory(stage: Stage) -> list[str]:
    """No GPU is available: a page with its metrics is."""
    series = "".join(
        f'replyline_gpu_memory_bytes{{gpu="0",state="{state}"}} {size}\n'
        for state, size in (("used", 79e9), ("total", 80e9))
    )
    body = f"# TYPE replyline_gpu_memory_bytes gauge\n{series}".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await stage.bottleneck(extra=[f"http://127.0.0.1:{port}/metrics"])


async def redis(stage: Stage) -> list[str]:
    """Redis hangs."""
    stage.system.redis.signal(signal.SIGSTOP)
    try:
        async with asking(stage, 1, "Where is my parcel?", max_output_tokens=5):
            return await stage.bottleneck()
    finally:
        stage.system.redis.signal(signal.SIGCONT)


async def broker(stage: Stage) -> list[str]:
    """The broker hangs."""
    hanging = stage.broker._child
    assert hanging is not None
    hanging.signal(signal.SIGSTOP)
    try:
        return await stage.bottleneck()
    finally:
        hanging.signal(signal.SIGCONT)


async def process(stage: Stage) -> list[str]:
    stage.worker.kill()
    return await stage.bottleneck()


# In an order in which no fault affects the next.
QUICK = (network, redis)
FAULTS = (*QUICK, nothing, gateway_loop, clients, decode, prefill, kv, gpu_memory, queue, broker, process)


@pytest.mark.parametrize(
    "answer",
    [b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ncut off", b"HTTP/1.1 200 OK\r\n\r\n\xff"],
    ids=["no HTTP", "cut off", "no text"],
)
async def test_an_invalid_answer_is_reported_like_a_missing_one(answer: bytes) -> None:
    """Prometheus cannot be asked there either."""

    async with saying(answer) as url:
        told = await _page(f"{url}/metrics")
        assert isinstance(told, str)
        assert told.startswith("no answer")
        with pytest.raises(SettingsError, match="write the address of a Prometheus"):
            await targets_of(url)


async def test_an_invalid_address_is_reported_and_is_no_internal_fault() -> None:
    """Prometheus returned an address that no check has validated."""
    assert str(await _page("http://127.0.0.1:808O/metrics")).startswith("no answer")
    assert str(await _socket("ws://127.0.0.1:808O/ws")).startswith("no connection")


@pytest.mark.promise(25)
async def test_diagnose_names_the_fault(stage: Stage, reliability: Reliability) -> None:
    """It is the first cause found; in the ordinary suite, whose machine may be busy, one of them."""
    faults = FAULTS[: reliability.amount(len(FAULTS), part=len(QUICK))]
    wrong: dict[str, str] = {}
    if not reliability.whole:
        stage.seconds = 1.5
    for fault in faults:
        name, found = fault.__name__, await fault(stage)
        if name != "nothing" and not (found[:1] == [name] if reliability.whole else name in found):
            wrong[name] = ", ".join(found) or "nothing"
        if name == "nothing" and found:
            wrong[name] = ", ".join(found)
    longest_s = max(stage.looks_s)
    reliability.found(
        figure=f"{len(faults) - len(wrong)} of {len(faults)} named, the longest look {longest_s:.0f} s"
        + "".join(f"; {name}: {verdict}" for name, verdict in wrong.items()),
        target="at least 9 of 10 named, in ≤ 60 s each",
        holds=len(wrong) <= len(faults) // 10 and longest_s <= LONGEST_LOOK_S,
    )
