"""The machine under the processes: the world's own clocks, randomness and connections to Kafka and Redis.

The product reads its clocks and makes its threads through `shared.process`; this module replaces what libraries read
directly. Nothing is restored: a world has a separate interpreter (`tests.world.runs`).
"""

import asyncio
import inspect
import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import aiokafka.client
import structlog
from aiokafka import AIOKafkaConsumer
from fakeredis.commands_mixins import scripting_mixin
from prometheus_client import Counter, Gauge, Histogram

import gateway.__main__ as gateway_main
import gateway.access.jwks
import gateway.frontends.websocket
import shared.faq.live
import shared.kafka.broker.refusals
import shared.kafka.reading.group_reader
import shared.kafka.watch
import shared.process.vitals
import shared.records.commits
import shared.redis.client
import workers.building
import workers.intake.reader
import workers.kv.cache
import workers.kv.nodes
import workers.process as worker_process
from shared.faq import FaqIndex
from shared.kafka import PartitionReader
from shared.model.tokenizer import Tokenizer
from shared.settings.gateway import GatewaySettings
from tests.world.redis import runtime_of
from tests.world.virtual.node import NODE
from workers.engine.fake import FakeEngine
from workers.serving.capacity import CapacityPublisher

if TYPE_CHECKING:
    from tests.world.kafka.broker import Kafka
    from tests.world.redis import Redis
    from tests.world.tokens import Issuer
    from tests.world.virtual.loop import VirtualLoop

POISON: Final = "\N{BLACK SKULL AND CROSSBONES}"
_POISON: Final = Tokenizer.byte_level().encode_text(POISON)[0]  # a byte that no entry of the FAQ has
_FOR_EVER_S: Final = 1e6
_SECRET: Final = b"the cursors of both gateways are signed with it"
Hear = Callable[[str, dict[str, Any]], None]


class Entropy:
    """The randomness of every process, from one seed."""

    def __init__(self) -> None:
        self._chance = random.Random()
        self.reseed(0)

    def reseed(self, seed: int) -> None:
        """Restart from a seed, including the module `random`."""
        self._chance.seed(f"{seed}/entropy")
        random.seed(f"{seed}/random")

    def install(self) -> None:
        """Make it the source of `os.urandom` and `secrets`."""
        chance = self._chance
        _put(os, urandom=chance.randbytes)
        _put(secrets, token_bytes=lambda nbytes=32: chance.randbytes(nbytes))
        _put(secrets, token_hex=lambda nbytes=32: chance.randbytes(nbytes).hex())
        _put(secrets, randbits=chance.getrandbits, randbelow=chance.randrange, choice=chance.choice)


def install(loop: "VirtualLoop", kafka: "Kafka", redis: "Redis", issuer: "Issuer", hear: Hear) -> Entropy:
    """Replace the machine with the world's, permanently; its last argument receives each log line."""
    _install_clocks(loop)
    entropy = Entropy()
    entropy.install()
    _wake_fetches(kafka)
    _put(aiokafka.client, create_conn=kafka.connect)
    _put(shared.kafka.broker.refusals, create_conn=kafka.connect)
    _put(shared.redis.client, async_redis=redis.client)
    _put(gateway.access.jwks, read_keys=issuer.read)
    _put(workers.kv.nodes, blocking_redis=redis.blocking_client)
    _put(shared.process.vitals, read_machine=lambda: None)
    _put(gateway_main, settle_heap=lambda: None)
    _put(worker_process, settle_heap=lambda: None)
    _put(os, getpid=lambda: 1)
    _poll_seldom()
    _count_nothing()
    _make_engines_fail()
    _remember_caches()
    _share_what_is_read()
    _install_logs(loop, hear)
    return entropy


def _put(owner: object, **names: Any) -> None:
    for name, value in names.items():
        setattr(owner, name, value)


def _install_clocks(loop: "VirtualLoop") -> None:
    """Replace the clocks that libraries and the clients of the chaos run read."""

    def wall_s() -> float:
        return NODE.get(loop.world).wall_s()

    def sleep(seconds: float) -> None:
        NODE.get(loop.world).threads.sleep(seconds)

    def monotonic_ns() -> int:
        return int(loop.now * 1e9)

    _put(time, time=wall_s, time_ns=lambda: int(wall_s() * 1e9), sleep=sleep)
    _put(time, monotonic=loop.time, perf_counter=loop.time, monotonic_ns=monotonic_ns, perf_counter_ns=monotonic_ns)


def _wake_fetches(kafka: "Kafka") -> None:
    """Answer a consumer's pending fetch when it is about to fetch other records, sooner than a broker would."""

    def waking(method: Any) -> Any:
        def call(self: Any, *args: Any) -> Any:
            kafka.wake(NODE.get())
            return method(self, *args)

        return call

    for name in ("assign", "resume", "seek"):
        _put(AIOKafkaConsumer, **{name: waking(getattr(AIOKafkaConsumer, name))})


def _poll_seldom() -> None:
    """Lengthen the polling intervals, so that a seed costs less."""
    _put(gateway.frontends.websocket, _RELIEVE_S=0.25)
    _put(shared.faq.live, _POLL_S=5.0)
    _put(shared.kafka.watch, _POLL_S=0.5)
    _put(shared.kafka.reading.group_reader, _HEARTBEATS=10)
    _put(shared.records.commits, INTERVAL_S=0.2)
    _put(workers.intake.reader, _LAG_INTERVAL_S=60.0)
    _by_default(AIOKafkaConsumer.__init__, consumer_timeout_ms=2_000)
    _by_default(CapacityPublisher.__init__, interval_s=1.0)
    _by_default(PartitionReader.read, timeout_ms=5_000)


def _by_default(function: Any, **values: Any) -> None:
    function.__kwdefaults__.update(values)


def _count_nothing() -> None:
    """Disable costly work that no oracle reads: metrics, checks of abstract classes and of Lua's globals."""

    def nothing(*_: Any) -> None: ...

    for metric in (Counter, Gauge, Histogram):
        _put(metric, **{name: nothing for name in ("inc", "dec", "set", "observe") if hasattr(metric, name)})
    _put(asyncio.coroutines, iscoroutine=inspect.iscoroutine)
    _put(scripting_mixin, _check_for_lua_globals=nothing)  # the scripts are tested on a real Redis
    _put(scripting_mixin.ScriptingCommandsMixin, _get_server_runtime=runtime_of)


def _make_engines_fail() -> None:
    """Let an engine hang or refuse KV when a fault requires it, and let poison end its process."""
    prefill, decode, import_kv = FakeEngine.prefill, FakeEngine.decode, FakeEngine.import_kv

    def prefill_or_die(self: Any, chunks: Any) -> Any:
        node = NODE.get(None)
        judges = node is None or node.kv is None
        if node is not None and not judges and any(_POISON in chunk.token_ids for chunk in chunks):
            node.poisoned()
        return prefill(self, chunks)

    def decode_or_hang(self: Any, rows: Any) -> Any:
        node = NODE.get(None)
        if node is not None and node.hangs_since_s is not None:
            node.threads.sleep(_FOR_EVER_S)
        return decode(self, rows)

    def import_or_refuse(self: Any, **given: Any) -> None:
        node = NODE.get()
        if node.spoils:
            node.spoils -= 1
            raise ValueError("no such KV")
        import_kv(self, **given)

    _put(FakeEngine, prefill=prefill_or_die, decode=decode_or_hang, import_kv=import_or_refuse)


def _share_what_is_read() -> None:
    """Load once, for all processes, the files that each reads at its start and never changes."""
    index, tokenizer = FaqIndex.load(), Tokenizer.byte_level()
    _put(FaqIndex, load=lambda *_, **__: index)
    _put(shared.faq.live.LiveFaq, _load=lambda _: index)
    _put(GatewaySettings, cursor_secret_bytes=lambda _: _SECRET)
    _put(Tokenizer, byte_level=lambda: tokenizer)


def _remember_caches() -> None:
    """Keep each process's KV cache, for the oracles."""
    open_cache = workers.kv.cache.open_cache

    def opened(*args: Any) -> Any:
        NODE.get().kv = cache = open_cache(*args)
        return cache

    _put(workers.building, open_cache=opened)


def _install_logs(loop: "VirtualLoop", hear: Hear) -> None:
    logging.disable(logging.CRITICAL)

    def collect(_: Any, level: str, event: Any) -> Any:
        hear(NODE.get(loop.world).name, {"level": level, **event})
        raise structlog.DropEvent

    structlog.configure(processors=[collect])
