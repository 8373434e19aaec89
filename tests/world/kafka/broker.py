"""Three Kafka brokers: which one leads each partition, how they answer, and how they fail."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokafka.conn import CloseReason
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.world.kafka.connection import Connection
from tests.world.kafka.groups import NOT_COORDINATOR, Answer, Groups
from tests.world.kafka.held import NOT_LEADER, PAUSE_S, Fetch, Produce
from tests.world.kafka.log import Batch, Log
from tests.world.virtual.node import Node

if TYPE_CHECKING:
    from tests.world.virtual.loop import VirtualLoop

BROKERS: Final = 3
_FIRST_PORT: Final = 9_092
_ELECTION_S: Final = 0.3
_REPLICATION_S: Final = (0.0002, 0.003)
_SLOW_S: Final = 0.5
_SLOW_ACKS_S: Final = 1.0
_CHANGES_NOTHING: Final = ("Fetch", "Heartbeat", "Produce", "OffsetCommit")
OUT_OF_RANGE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NO_COORDINATOR = 1, 3, 5, 15
_OF_GROUPS: Final = {
    "JoinGroupRequest": "join",
    "SyncGroupRequest": "sync",
    "HeartbeatRequest": "heartbeat",
    "LeaveGroupRequest": "leave",
    "OffsetCommitRequest": "commit",
    "OffsetFetchRequest": "offsets",
}
_OF_BROKERS: Final = {
    "MetadataRequest": "_metadata",
    "DescribeConfigsRequest": "_describe_configs",
    "FindCoordinatorRequest": "_find_coordinator",
    "InitProducerIdRequest": "_init_producer",
    "OffsetRequest": "_list_offsets",
    "ProduceRequest": "_produce",
    "FetchRequest": "_fetch",
}
Layout = dict[str, list[tuple[int, int | None]]]


class Kafka:
    """The brokers of a world. `topics` is the number of partitions of each topic, `configs` the configuration it was
    created with. `calls(process, call)` is called for each request that arrives, `retaining(log, end)` before records
    are deleted."""

    def __init__(
        self, loop: "VirtualLoop", topics: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.loop = loop
        self.chance = random.Random(0)
        self.up = dict.fromkeys(range(BROKERS), True)
        self.logs: dict[tuple[str, int], Log] = {}
        self.groups = Groups(loop, self.logs)
        self.connections: dict[Connection, None] = {}
        self.slow_until_s = dict.fromkeys(range(BROKERS), 0.0)
        self.acks_slow_until_s = 0.0
        self._configs = configs
        self._coordinator = 0
        self._last_producer = 1_000
        self.calls: Callable[[Node, str], None] = lambda *_: None
        self.retaining: Callable[[Log, int], None] = lambda *_: None
        self._stale: tuple[float, Layout] = 0.0, {}
        for topic, count in topics.items():
            self.grow(topic, count)

    def port(self, broker: int) -> int:
        """Return the port of a broker."""
        return _FIRST_PORT + broker

    def log(self, topic: str) -> list[Log]:
        """Return a topic's partitions."""
        return [log for log in self.logs.values() if log.topic == topic]

    def lag_s(self, broker: int) -> float:
        """Return the delay of a message to or from a broker, in seconds."""
        slow = self.chance.random() * _SLOW_S if self.loop.now < self.slow_until_s[broker] else 0.0
        return self.loop.lag_s() + slow

    # --- what becomes of the brokers

    def stop(self, broker: int) -> None:
        """Stop a broker unless it is the last one. Other brokers lead its partitions a moment later."""
        if self.up[broker] and sum(self.up.values()) > 1:
            self.up[broker] = False
            for connection in [each for each in self.connections if each.broker == broker]:
                self.loop.after(
                    self.loop.lag_s(), connection.close, CloseReason.CONNECTION_BROKEN, node=connection.node
                )
            self.loop.after(_ELECTION_S, self._elect)

    def start(self, broker: int) -> None:
        """Start a stopped broker."""
        self.up[broker] = True
        self._elect()

    def _living(self) -> list[int]:
        return [broker for broker, up in self.up.items() if up]

    def _elect(self) -> None:
        living = self._living()
        for log in self.logs.values():
            if log.leader is None or not self.up[log.leader]:
                log.move(living[log.number % len(living)], self._keeps)
        if not self.up[self._coordinator]:
            self._coordinator = living[0]

    def _keeps(self) -> bool:
        return self.chance.random() < 0.5

    def move_leaders(self) -> None:
        """Move the leadership of about half of the partitions to other brokers."""
        living = self._living()
        for log in self.logs.values():
            if self.chance.random() < 0.5:
                log.move(self.chance.choice(living), self._keeps)
        self._coordinator = self.chance.choice(living)

    def tell_stale(self, seconds: float) -> None:
        """Return the present leaders and partition counts in metadata for this long, even after they change."""
        self._stale = self.loop.now + seconds, self._layout()

    def grow(self, topic: str, count: int) -> None:
        """Add partitions to a topic."""
        append_time = self._configs.get(topic, {}).get("message.timestamp.type") == "LogAppendTime"
        for number in range(len(self.log(topic)), count):
            self.logs[topic, number] = Log(topic, number, len(self.logs) % BROKERS, append_time)

    def write(self, topic: str, number: int, value: bytes, key: bytes | None = None) -> None:
        """Append a record that no process of the world has produced."""
        log, builder = self.logs[topic, number], DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, len(value) + 1_024)
        builder.append(0, self._now_ms(), key, value, [])
        batch = log.append(bytes(builder.build()), self._now_ms())
        assert isinstance(batch, Batch), "of no producer"
        log.replicated(batch, log.epoch)

    def retain(self, age_s: float) -> None:
        """Delete records older than this from topics with time-based retention, and superseded records from compacted
        topics."""
        for log in self.logs.values():
            config = self._configs.get(log.topic, {})
            if "compact" in config.get("cleanup.policy", ""):
                log.compact()
            elif "retention.ms" in config:
                end = log.older(self._now_ms() - int(age_s * 1_000))
                self.retaining(log, end)
                log.trim(end)

    def _now_ms(self) -> int:
        return int(self.loop.world.wall_s() * 1_000)

    # --- connections and requests

    async def connect(self, host: str, port: int, **options: Any) -> Connection:
        """Replace `aiokafka.conn.create_conn`. Raises `ConnectionRefusedError`."""
        broker = port - _FIRST_PORT
        await asyncio.sleep(2 * self.lag_s(broker))
        if not self.up.get(broker, False):
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        return Connection(self, broker, host, options)

    def asked(self, connection: Connection, request: Any) -> None:
        """Record that a request was sent or answered; most can change which records the process fetches next."""
        if not type(request).__name__.startswith(_CHANGES_NOTHING):
            self.wake(connection.node)

    def wake(self, node: Node) -> None:
        """Answer a process's idle fetches when they expire: it is about to fetch other records."""
        node.refetched_s = self.loop.now
        for connection in self.connections:
            if connection.idle is not None and connection.node is node:
                connection.idle()

    def handle(self, connection: Connection, request: Any, answer: Callable[[Any], None]) -> None:
        """Answer a request, immediately or after a delay."""
        name = type(request).__name__.partition("_")[0]
        self.calls(connection.node, name.removesuffix("Request"))

        def respond(*values: Any) -> None:
            answer(request.RESPONSE_TYPE(*values))

        if name in _OF_GROUPS:
            self._handle_group(connection, name, request, respond)
        else:
            getattr(self, _OF_BROKERS[name])(connection, request, respond)

    def _handle_group(self, connection: Connection, name: str, request: Any, respond: Answer) -> None:
        if connection.broker == self._coordinator:
            getattr(self.groups, _OF_GROUPS[name])(request, respond)
        elif name == "JoinGroupRequest":
            respond(0, NOT_COORDINATOR, -1, "", "", "", [])
        elif name == "SyncGroupRequest":
            respond(0, NOT_COORDINATOR, b"")
        elif name == "OffsetCommitRequest":
            respond([(topic, [(number, NOT_COORDINATOR) for number, *_ in parts]) for topic, parts in request.topics])
        elif name == "OffsetFetchRequest":
            respond(0, [], NOT_COORDINATOR)
        else:
            respond(0, NOT_COORDINATOR)

    def _layout(self) -> Layout:
        layout: Layout = {}
        for log in self.logs.values():
            layout.setdefault(log.topic, []).append((log.number, log.leader))
        return layout

    def _metadata(self, _: Connection, request: Any, answer: Answer) -> None:
        until_s, layout = self._stale
        if self.loop.now >= until_s:
            layout = self._layout()
        told = []
        for name in layout if request.topics is None else request.topics:
            replicas = list(range(BROKERS))
            parts = [
                (0, number, leader, replicas, replicas)
                if leader is not None and self.up[leader]
                else (LEADER_NOT_AVAILABLE, number, -1, replicas, replicas)
                for number, leader in layout.get(name, ())
            ]
            told.append((0 if parts else UNKNOWN_TOPIC, name, False, parts))
        living = [(broker, "kafka", self.port(broker), "rack") for broker in self._living()]
        led = all(part[0] == 0 for _, _, _, parts in told for part in parts)
        self.loop.after(0.0 if led else PAUSE_S, answer, living, self._coordinator, told)

    def _describe_configs(self, _: Connection, request: Any, answer: Answer) -> None:
        told = []
        for kind, topic, wanted in request.resources:
            known = {"min.insync.replicas": "2", **self._configs.get(topic, {})}
            entries: list[Any] = [(name, known[name], False, 1, False, []) for name in wanted or known if name in known]
            error = 0 if self.log(topic) else UNKNOWN_TOPIC
            told.append((error, None, kind, topic, [] if error else entries))
        answer(0, told)

    def _find_coordinator(self, _: Connection, __: Any, answer: Answer) -> None:
        if self.up[self._coordinator]:
            answer(0, 0, None, self._coordinator, "kafka", self.port(self._coordinator))
        else:
            answer(0, NO_COORDINATOR, None, -1, "", -1)

    def _init_producer(self, _: Connection, __: Any, answer: Answer) -> None:
        self._last_producer += 1
        answer(0, 0, self._last_producer, 0)

    def _led(self, connection: Connection, topic: str, number: int) -> Log | int:
        log = self.logs.get((topic, number))
        if log is None:
            return UNKNOWN_TOPIC
        return log if log.leader == connection.broker else NOT_LEADER

    def _list_offsets(self, connection: Connection, request: Any, answer: Answer) -> None:
        told = []
        for topic, parts in request.topics:
            rows = []
            for number, timestamp_ms in parts:
                log = self._led(connection, topic, number)
                if isinstance(log, int):
                    rows.append((number, log, -1, -1))
                elif timestamp_ms < 0:
                    rows.append((number, 0, -1, log.high if timestamp_ms == -1 else log.start))
                else:
                    found = log.since(timestamp_ms)
                    rows.append((number, 0, found.timestamp, found.offset) if found else (number, 0, -1, -1))
            told.append((topic, rows))
        answer(0, told)

    def _produce(self, connection: Connection, request: Any, answer: Answer) -> None:
        produce = Produce(request, answer)
        for topic, parts in request.topics:
            for number, data in parts:
                log = self._led(connection, topic, number)
                appended = log.append(bytes(data), self._now_ms()) if isinstance(log, Log) else log
                if isinstance(appended, int):
                    produce.results[topic, number] = appended, -1
                    continue
                assert isinstance(log, Log), "it was appended to"
                if not appended.safe:
                    slow = self.chance.random() * _SLOW_ACKS_S if self.loop.now < self.acks_slow_until_s else 0.0
                    delay_s = self.chance.uniform(*_REPLICATION_S) + slow
                    self.loop.after(delay_s, log.replicated, appended, log.epoch)
                if request.required_acks == -1:
                    produce.watch(log, appended)
                else:
                    produce.results[topic, number] = 0, appended.base
        produce.tell()

    def _fetch(self, connection: Connection, request: Any, answer: Answer) -> None:
        Fetch(self, connection, request, answer).look()

    def fetched(self, connection: Connection, request: Any) -> tuple[list[Any], bool, bool]:
        """Return the rows of a fetch, whether it has records, and whether it has an error."""
        told, anything, wrong = [], False, False
        for topic, parts in request.topics:
            rows: list[Any] = []
            for number, offset, max_bytes in parts:
                log = self._led(connection, topic, number)
                if isinstance(log, int):
                    error, high, data = log, -1, b""
                elif not log.start <= offset <= log.end:
                    error, high, data = OUT_OF_RANGE, -1, b""
                else:
                    error, high, data = 0, log.high, log.read(offset, max_bytes)
                anything, wrong = anything or bool(data), wrong or bool(error)
                rows.append((number, error, high, high, [], data))
            told.append((topic, rows))
        return told, anything, wrong
