"""The processes that are killed and started again: brokers, Redis, two gateways, two workers on the fake engine.

Every start is made on the main thread: only so does the kernel end a child whose parent was killed (ops/processes.py).
"""

import asyncio
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from ops.chaos.cells import Hop
from ops.chaos.ledger import Line
from ops.chaos.proxy import Proxy
from ops.chaos.rights import PROMPT_ENV
from ops.chaos.schedule import Fault, Kind
from ops.embedded import EmbeddedRedis
from ops.kafka_broker import KafkaBroker
from ops.kafka_cluster import KafkaCluster
from ops.own_services import OWN_SERVICES
from ops.processes import Child, ServiceError, free_port
from ops.up import wait_ready
from shared.kafka import create_topics
from shared.kafka_settings import KafkaSettings
from shared.settings import PREFIX

GATEWAYS: Final = 2
WORKERS: Final = 2
_STOP_S: Final = 15.0
_POLL_S: Final = 0.05
_SESSION_TIMEOUT_MS: Final = 2_000
_ENV: Final = {
    **PROMPT_ENV,
    "AUTH__MODE": "anonymous",
    "GATEWAY__MESSAGES_PER_MINUTE": "1000000",
    "GATEWAY__MAX_INFLIGHT_PER_CONNECTION": "1000",
    "LOG__FORMAT": "json",
    "KAFKA__SESSION_TIMEOUT_MS": str(_SESSION_TIMEOUT_MS),
    "WORKER__SLOTS": "16",
    "WORKER__FAKE_DECODE_MS_PER_STEP": "5",
    "REDIS__TIMEOUT_MS": "200",
}


@dataclass(slots=True, kw_only=True)
class Member:
    """A gateway or a worker: started with the same settings, on the same port, each time."""

    name: str
    module: str
    port: int
    env: dict[str, str]
    log: Path
    child: Child | None = None

    def launch(self) -> None:
        env = {PREFIX + name: value for name, value in self.env.items()}
        self.child = Child.start([sys.executable, "-m", self.module], env=env, log=self.log)

    async def ready(self) -> None:
        """Raises `ServiceError`, with the end of what the process said."""
        assert self.child is not None, "launch comes first"
        try:
            await wait_ready(self.child, f"http://127.0.0.1:{self.port}/ready", self.name)
        except ServiceError as error:
            said = self.log.read_text(errors="replace").splitlines()[-5:]
            raise ServiceError(f"{error}: {' | '.join(said)}") from None

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()

    async def leave(self) -> bool:
        """Asked to go; returns when it is gone, and whether it went by itself."""
        assert self.child is not None, "launch comes first"
        self.child.signal(signal.SIGTERM)
        for _ in range(int(_STOP_S / _POLL_S)):
            if not self.child.running:
                return True
            await asyncio.sleep(_POLL_S)
        self.child.kill()
        return False


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that was carried out. `back_s`: from the kill until all was up again."""

    kind: Kind
    at_s: float
    back_s: float


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Use as a context manager. `lines` tells what was done, for the stories. `before`: proxies before the one broker
    and before Redis, whose addresses are the only ones that gateways and workers ever hear of."""

    brokers: int
    before: Mapping[Hop, Proxy] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    logs: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="replyline-chaos-")))
    keep_logs: bool = False
    _services: ExitStack = field(default_factory=ExitStack)
    _redis: EmbeddedRedis | None = None
    _kafka: KafkaBroker | KafkaCluster | None = None
    _gateways: list[Member] = field(default_factory=list)
    _workers: list[Member] = field(default_factory=list)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    @property
    def gateway_ports(self) -> list[int]:
        return [member.port for member in self._gateways]

    async def start(self) -> None:
        """Raises `ServiceError`, `BrokerUnavailable`."""
        redis = self._redis = self._services.enter_context(EmbeddedRedis(port=self._port_behind(Hop.REDIS)))
        kafka: KafkaBroker | KafkaCluster = self._one_broker() if self.brokers == 1 else KafkaCluster()
        self._services.callback(kafka.stop)
        self._kafka = kafka.start()
        bootstrap = self._reached_at(Hop.KAFKA, kafka.bootstrap)
        settings = KafkaSettings(bootstrap_servers=bootstrap, replication_factor=self.brokers)
        topics = settings.topics.all(
            request_partitions=settings.request_partitions, reply_partitions=settings.reply_partitions
        )
        await create_topics(settings, topics)
        common = {
            **_ENV,
            **OWN_SERVICES,
            "KAFKA__BOOTSTRAP_SERVERS": bootstrap,
            "REDIS__URL": self._reached_at(Hop.REDIS, redis.url),
            "GATEWAY__CURSOR_SECRET": secrets.token_hex(32),
        }
        for number in range(GATEWAYS):
            port = free_port()
            env = {"GATEWAY__PORT": str(port), "GATEWAY__REPLY_PARTITION": str(number)}
            self._gateways.append(self._member(f"gateway-{number}", "gateway", port, common | env))
        for number in range(WORKERS):
            port = free_port()
            # One static member of the group, which comes back to what it had, and one that leaves and joins.
            env = {"WORKER__METRICS_PORT": str(port), "WORKER__INSTANCE_ID": "" if number else "chaos-0"}
            self._workers.append(self._member(f"worker-{number}", "workers", port, common | env))
        members = [*self._gateways, *self._workers]
        for member in members:
            member.launch()
        await self.ready()

    async def ready(self) -> None:
        """When every process is. Raises `ServiceError`."""
        for member in [*self._gateways, *self._workers]:
            await member.ready()

    async def still_ready(self) -> None:
        """After a load: raises `ServiceError` where a process ended by itself, and keeps the logs."""
        try:
            await self.ready()
        except ServiceError as error:
            self.keep_logs = True
            raise ServiceError(f"{error}; the processes' logs: {self.logs}") from None

    def _port_behind(self, hop: Hop) -> int:
        return self.before[hop].target_port if hop in self.before else 0

    def _reached_at(self, hop: Hop, address: str) -> str:
        if hop not in self.before:
            return address
        proxy = self.before[hop]
        return address.replace(f"127.0.0.1:{proxy.target_port}", f"127.0.0.1:{proxy.port}")

    def _one_broker(self) -> KafkaBroker:
        """A Kafka client goes where the metadata says, so the broker itself must name its proxy."""
        if Hop.KAFKA not in self.before:
            return KafkaBroker()
        advertised = f"PLAINTEXT://127.0.0.1:{self.before[Hop.KAFKA].port}"
        return KafkaBroker(port=self._port_behind(Hop.KAFKA), settings={"advertised.listeners": advertised})

    def _member(self, name: str, module: str, port: int, env: dict[str, str]) -> Member:
        return Member(name=name, module=module, port=port, env=env, log=self.logs / f"{name}.log")

    async def strike(self, fault: Fault) -> None:
        """Kill, wait, start again; returns when all is up again. What must not be hit twice at once waits its turn.

        Raises `ServiceError` where something does not come up again.
        """
        if fault.kind is Kind.ROLL:
            await self._roll()
            return
        worker = fault.kind in {Kind.WORKER, Kind.REBALANCE}
        async with self._lock("worker" if worker else fault.kind.value):
            at_s = time.monotonic()
            match fault.kind:
                case Kind.WORKER:
                    await self._kill(self._workers[fault.target], fault.down_s)
                case Kind.GATEWAY:
                    await self._kill(self._gateways[fault.target], fault.down_s)
                case Kind.REBALANCE:
                    await self._replace(self._workers[-1], fault.down_s)
                case Kind.REDIS:
                    await self._kill_redis(fault.down_s)
                case Kind.BROKER:
                    await self._kill_broker(fault.target, fault.down_s)
                case _:
                    raise AssertionError(f"{fault.kind} is no matter of processes")
            self.strikes.append(Strike(fault.kind, at_s, time.monotonic() - at_s))

    async def _roll(self) -> None:
        """Each process in turn, the next when the one before is ready: as a deployment does."""
        async with self._lock(Kind.ROLL.value):
            at_s = time.monotonic()
            for kind, members in ((Kind.GATEWAY, self._gateways), (Kind.WORKER, self._workers)):
                for member in members:
                    async with self._lock(kind.value):
                        if not await self._replace(member, 0.0):
                            raise ServiceError(f"{member.name} is still there {_STOP_S:.0f} s after SIGTERM")
            self.strikes.append(Strike(Kind.ROLL, at_s, time.monotonic() - at_s))

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _kill(self, member: Member, down_s: float) -> None:
        member.kill()
        self._note(f"{member.name} killed")
        await asyncio.sleep(down_s)
        member.launch()
        self._note(f"{member.name} started")
        await member.ready()
        self._note(f"{member.name} ready")

    async def _replace(self, member: Member, down_s: float) -> bool:
        """Whether it went by itself."""
        self._note(f"{member.name} asked to go")
        went = await member.leave()
        self._note(f"{member.name} gone" if went else f"{member.name} did not go and was killed")
        await asyncio.sleep(down_s)
        member.launch()
        await member.ready()
        self._note(f"{member.name} ready")
        return went

    async def _kill_redis(self, down_s: float) -> None:
        assert self._redis is not None, "start comes first"
        self._redis.kill()
        self._note("redis killed")
        await asyncio.sleep(down_s)
        self._redis.start()
        self._note("redis ready, empty")

    async def _kill_broker(self, number: int, down_s: float) -> None:
        if isinstance(self._kafka, KafkaBroker):
            self._kafka.halt(kill=True)
            self._note("the broker killed")
            await asyncio.sleep(down_s)
            self._kafka.start()
            self._note("the broker ready")
            return
        assert self._kafka is not None, "start comes first"
        node = self._kafka.nodes[number]
        node.halt(kill=True)
        self._note(f"broker {node.node_id} killed")
        await asyncio.sleep(down_s)
        node.launch()
        self._note(f"broker {node.node_id} started")
        await asyncio.to_thread(self._kafka.wait_in_sync)
        self._note(f"broker {node.node_id} back, all replicas in sync")

    def _note(self, what: str) -> None:
        self.lines.append(Line(time.monotonic(), what))

    def stop(self) -> None:
        """Gateways first, then workers, then what they stood on. May be called again."""
        for member in [*self._gateways, *self._workers]:
            if member.child is not None:
                member.child.stop(timeout_s=_STOP_S)
        self._services.close()
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
