"""The system in production form: gateways and workers as separate processes, on a real Kafka and a real Redis."""

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from ops.model.prepare import prepare_model
from ops.stack.embedded import EmbeddedRedis
from ops.stack.processes import Child, free_port
from shared.conversation.turn import Turn
from shared.kafka import Producer, create_topics
from shared.settings import PREFIX, Settings
from shared.settings.kafka import KafkaSettings
from shared.versions.log import VersionsLog
from shared.versions.state import Move, State
from tests.support.switches import nested
from tests.support.tap import LIMIT_S, Tap

CURSOR_SECRET = Path(__file__).parent / "samples" / "cursor_secret.txt"  # for gateways that share it
READY_S = 60.0
STOP_S = 20.0
REPLY_PARTITIONS = 6  # the first gateways of a system have 0 and 1: the others are for those that a test adds
OPERATORS_PAGES = ("/health", "/ready", "/ready/strict", "/metrics", "/drain")
_POLL_S = 0.02


async def eventually(condition: Callable[[], Any], *, limit_s: float = LIMIT_S) -> Any:
    """The condition's value once it is true, awaited where it has to be; fails when it is not in time."""
    until = time.monotonic() + limit_s
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > until:
            pytest.fail(f"not within {limit_s} s; at last it was {value!r}")
        await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP answer with any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def get(url: str) -> Page | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return Page(page.status, dict(page.headers), page.read())
    except urllib.error.HTTPError as error:
        with error:
            return Page(error.code, dict(error.headers), error.read())
    except OSError:
        return None


@dataclass(slots=True, kw_only=True)
class Service:
    """A gateway or a worker. `address` is for customers, `operators` for who runs it; a worker's are one."""

    child: Child
    address: str
    operators: str
    log: Path

    @property
    def page(self) -> str:
        return f"http://{self.address}/"

    @property
    def ws(self) -> str:
        return f"ws://{self.address}/ws"

    async def get(self, path: str) -> Page | None:
        """Return None if no server answers."""
        address = self.operators if path in OPERATORS_PAGES else self.address
        return await asyncio.to_thread(get, f"http://{address}{path}")

    async def status_of(self, path: str) -> int | None:
        page = await self.get(path)
        return page.status if page else None

    async def ready(self, *, limit_s: float = READY_S) -> Self:
        async def is_ready() -> bool:
            if not self.child.running:
                pytest.fail(f"ended with {self.child.process.returncode}: {self.log.read_text()[-2_000:]}")
            return await self.status_of("/ready/strict") == 200

        await eventually(is_ready, limit_s=limit_s)
        return self

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels; 0 without samples."""
        page = await self.get("/metrics")
        assert page is not None
        return sum(
            sample.value
            for family in text_string_to_metric_families(page.body.decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def restored(self, *levels: str) -> float:
        """Tokens of prompts that were not computed, by where they stood."""
        kinds = levels or ("slot", "host", "redis")
        return sum([await self.metric("replyline_worker_tokens_total", kind=kind) for kind in kinds])

    def logged(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """The log's lines of that event and with these fields. What is not JSON comes as the event `raw`."""
        lines = [_line(text) for text in self.log.read_text().splitlines()]
        return [line for line in lines if event in {None, line.get("event")} and fields.items() <= line.items()]

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        self.child.signal(number)
        return await self.ended()

    async def ended(self, *, limit_s: float = STOP_S) -> int:
        status = await asyncio.to_thread(self.child.process.wait, limit_s)
        return int(status)

    def kill(self) -> None:
        self.child.kill()

    def pause(self) -> None:
        self.child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.signal(signal.SIGCONT)


def _line(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    return line if isinstance(line, dict) else {"event": "raw", "text": text}


# What differs from the shipped settings unless a test says otherwise.
COMMON: Final[dict[str, Any]] = {
    "kafka__request_partitions": 3,
    "kafka__reply_partitions": REPLY_PARTITIONS,
    "worker__engine": "fake",
    "worker__max_length": 4_096,
    "auth__mode": "anonymous",
    "handoff__enabled": "true",
    # All clients are on one machine.
    "quotas__address_per_minute": 0,
    # Most tests ask what no FAQ answers, to see the model's own text.
    "answers__policy": "model",
    "answers__guard": "false",
    # These tests check texts: a short stall of the machine must not replace them by the fallback.
    "promise__first_token_ms": 8_000,
    # What is stopped or cut is so long that it has not ended before.
    "limits__max_output_tokens": 2_000,
    # The default suits a local Redis on an idle machine.
    "redis__timeout_ms": 1_000,
}


@dataclass(slots=True, kw_only=True)
class System:
    """Services on one Kafka and one Redis; the topics' prefix separates them from others on the same broker.

    `settings` are those of every service: `worker__engine="fake"` is `REPLYLINE_WORKER__ENGINE=fake`, and bytes are a
    file's content.
    """

    bootstrap: str
    redis: EmbeddedRedis
    prefix: str
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    services: list[Service] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def environment(self, **settings: Any) -> dict[str, str]:
        where = {
            "kafka__bootstrap_servers": self.bootstrap,
            "kafka__topic_prefix": self.prefix,
            "redis__url": self.redis.url,
        }
        wanted = COMMON | where | self.settings | settings
        return {f"{PREFIX}{name}".upper(): str(self._written(name, value)) for name, value in wanted.items()}

    def _written(self, name: str, value: Any) -> Any:
        """The value, or what it makes in the system's folder. Bytes are written to a file there, once."""
        if callable(value):
            return value(self.folder)
        if not isinstance(value, bytes):
            return value
        path = self.folder / name
        if not path.exists():
            path.write_bytes(value)
        return path

    @property
    def service_settings(self) -> Settings:
        """Return the settings that every service has by its environment."""
        named = {name.removeprefix(PREFIX): value for name, value in self.environment().items()}
        return Settings.model_validate(nested(named))

    @property
    def kafka_settings(self) -> KafkaSettings:
        return KafkaSettings(
            bootstrap_servers=self.bootstrap,
            topic_prefix=self.prefix,
            request_partitions=self.settings.get("kafka__request_partitions", 3),
            reply_partitions=REPLY_PARTITIONS,
        )

    @property
    def topics(self) -> dict[str, int]:
        """Each with its number of partitions."""
        kafka = self.kafka_settings
        return kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)

    def gateway(self, *, clock: Path | None = None, **settings: Any) -> Service:
        """Start one; `ready` waits for it. `clock`: a file that says how far off its clock is
        (`tests.chaos.faults.clocks`)."""
        host = settings.get("gateway__host", "127.0.0.1")
        port = settings.setdefault("gateway__port", free_port())
        metrics_host = settings.setdefault("gateway__metrics_host", host)
        metrics_port = settings.setdefault("gateway__metrics_port", free_port())
        return self._start("gateway", f"{host}:{port}", f"{metrics_host}:{metrics_port}", settings, clock)

    def worker(self, *, module: str = "workers", clock: Path | None = None, **settings: Any) -> Service:
        """Start one, or what `module` makes of it; `ready` waits for it."""
        address = f"127.0.0.1:{settings.setdefault('worker__metrics_port', free_port())}"
        return self._start(module, address, address, settings, clock)

    def _start(
        self, module: str, address: str, operators: str, settings: dict[str, Any], clock: Path | None
    ) -> Service:
        log = self.folder / f"{module}-{next(self.numbers)}.log"
        what = [module] if clock is None else ["tests.chaos.faults.clocks", str(clock), module]
        child = Child.start([sys.executable, "-m", *what], env=self.environment(**settings), log=log)
        service = Service(child=child, address=address, operators=operators, log=log)
        self.services.append(service)
        return service

    def stop(self) -> None:
        """End everything that was started."""
        try:
            self.end(self.services)
        finally:
            self.redis.stop()

    def end(self, services: Sequence[Service]) -> None:
        """What does not end by itself is killed, and fails the test."""
        for service in services:
            service.child.signal(signal.SIGTERM)
            service.child.signal(signal.SIGCONT)
        stuck: list[str] = []
        for service in services:
            try:
                service.child.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                service.kill()
                stuck.append(f"{service.log.name}: {service.log.read_text()[-2_000:]}")
        assert not stuck, stuck

    async def turns(self, session_id: str, *, at_least: int = 0) -> list[Turn]:
        """Return a conversation's turns once Redis has `at_least` of them; each is written along with its answer."""
        async with Redis.from_url(self.redis.url) as redis:

            async def held() -> list[Turn]:
                values = await redis.lrange(f"replyline:{{demo/{session_id}}}:turns", 0, -1)
                return [msgspec.msgpack.decode(value, type=Turn) for value in values]

            async def are_written() -> bool:
                return len(await held()) >= at_least

            await eventually(are_written)
            return await held()

    async def move(self, state: State) -> None:
        """Have this be the registry's next state."""
        producer = Producer(self.kafka_settings, client_id="test")
        log = VersionsLog.of(self.kafka_settings, client_id="test")
        await producer.start()
        await log.start()
        try:
            entry = Move(state=state, author="test", reason="test", unix_ms=1)
            assert await log.append(producer, self.kafka_settings.topics.versions, entry)
        finally:
            await producer.stop()
            await log.stop()

    # --- Kafka, as another service sees it

    def topic(self, name: str) -> str:
        return self.prefix + name

    async def produce(self, topic: str, value: bytes | None, **options: Any) -> Any:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            return await producer.send_and_wait(self.topic(topic), value, **options)

    @asynccontextmanager
    async def reading(self, topic: str) -> AsyncIterator[Tap]:
        async with AIOKafkaConsumer(
            self.topic(topic), bootstrap_servers=self.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            yield Tap(consumer)

    async def log_end(self, topic: str, partition: int) -> int:
        """The next offset of that partition, a transaction's markers counted."""
        place = TopicPartition(self.topic(topic), partition)
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            return int((await consumer.end_offsets([place]))[place])

    async def committed(self, group: str = "replyline-workers") -> dict[tuple[str, int], int]:
        """A group's offsets: (topic without prefix, partition) → next offset to read."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(self.prefix + group)
        finally:
            await admin.close()
        return {
            (partition.topic.removeprefix(self.prefix), partition.partition): found.offset
            for partition, found in offsets.items()
        }


MakeSystem = Callable[..., Awaitable[System]]


async def made(*, bootstrap: str, prefix: str, folder: Path, **settings: Any) -> System:
    """A system without its services yet; with no broker it has no topics."""
    system = System(bootstrap=bootstrap, redis=start_redis(), prefix=prefix, folder=folder, settings=settings)
    if bootstrap:
        await create_topics(system.kafka_settings, system.topics)
    return system


def start_redis() -> EmbeddedRedis:
    """The system's redis-server. Without it the test fails and says what to type."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.fail("redis-server is missing. Type: apt-get install redis-server", pytrace=False)
    return EmbeddedRedis(binary=binary)


def model_dir() -> Path:
    """SmolLM2-135M-Instruct in int8, prepared at first use, where `make demo` keeps it too."""
    configured = os.environ.get("REPLYLINE_MODELS_DIR")
    models = Path(configured) if configured else Path(__file__).parents[2] / ".models"
    return prepare_model(models, "int8").path
