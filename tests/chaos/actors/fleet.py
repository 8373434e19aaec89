"""The processes that are killed and started again: brokers, Redis, two gateways, two workers on the fake engine.

Every start is made on the main thread: only so does the kernel end a child whose parent was killed
(ops/stack/processes.py)."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ops.stack.embedded import EmbeddedRedis
from ops.stack.kafka_broker import KafkaBroker
from ops.stack.own_services import OWN_SERVICES
from ops.stack.processes import ServiceError, free_port
from shared.kafka import create_topics
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from tests.chaos.actors.brokers import Brokers
from tests.chaos.actors.kafka_cluster import KafkaCluster, rack_of
from tests.chaos.actors.member import ENV, STOP_S, Member
from tests.chaos.actors.scaling import Scaling
from tests.chaos.actors.versions import LANES, Versions
from tests.chaos.faults.clocks import READ_EVERY_S, turn
from tests.chaos.faults.schedule import (
    GATEWAYS,
    MEMBERS,
    SCALED,
    VERSIONS,
    WORKERS,
    ZONES,
    Fault,
    Kind,
    Strike,
    clock_off_s,
    member_of,
    taken_by,
)
from tests.chaos.hops.gates import Gates, kafka_listeners
from tests.chaos.ledger.requests import Line
from tests.support.switches import nested
from tests.support.system import CURSOR_SECRET
from workers.serving.watchdog import LEAVE_S

_STEP_LIMIT_S: Final = 5.0
# A machine that has other work looks late.
_HANG_ENDS_S: Final = _STEP_LIMIT_S + LEAVE_S + 2.0
# Longer than Kafka is away: without it no worker has a step to hang in.
_STEP_COMES_S: Final = 20.0


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Use as a context manager. It deletes the processes' logs at exit, unless `keep_logs` is set or an error ends it.
    `lines` lists the applied faults, for the stories. `gates`: the proxies in front of the single broker and Redis;
    gateways and workers receive only the proxies' addresses. `clocks`: the clocks of gateways and workers can be wrong.
    `hangs`: workers' engines can hang and crash. `versions`: there are two, and workers for a canary and its control.
    `zones`: three, with a broker and a worker each, and a gateway in two of them."""

    brokers: int
    gates: Gates | None = None
    clocks: bool = False
    hangs: bool = False
    versions: bool = False
    zones: bool = False
    lines: list[Line] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    logs: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="replyline-chaos-")))
    keep_logs: bool = False
    _services: ExitStack = field(default_factory=ExitStack)
    _redis: EmbeddedRedis | None = None
    _kafka: KafkaBroker | KafkaCluster | None = None
    _struck: Brokers | None = None
    _gateways: list[Member] = field(default_factory=list)
    _workers: list[Member] = field(default_factory=list)
    _beside: list[Member] = field(default_factory=list)
    _moved: Versions | None = None
    _scaling: Scaling | None = None
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    @property
    def gateway_ports(self) -> list[int]:
        return [member.port for member in self._gateways]

    @property
    def bootstrap(self) -> str:
        """The address of Kafka for programs outside the fleet."""
        assert self._kafka is not None, "start comes first"
        return self._kafka.bootstrap

    @property
    def kafka_settings(self) -> KafkaSettings:
        return KafkaSettings(bootstrap_servers=self.bootstrap, replication_factor=self.brokers)

    @property
    def redis_url(self) -> str:
        """The address of Redis for programs outside the fleet."""
        assert self._redis is not None, "start comes first"
        return self._redis.url

    @property
    def worker_settings(self) -> Settings:
        """Return the settings that every worker has."""
        return Settings.model_validate(nested(ENV))

    @property
    def disks_that_ended(self) -> int:
        """Return how many brokers were ended by their full disk."""
        return 0 if self._struck is None else self._struck.disks_that_ended

    @property
    def _brokers(self) -> Brokers:
        assert self._struck is not None, "start comes first"
        return self._struck

    @property
    def revisions(self) -> list[str]:
        """Return the ids of the versions that write answers, where there are any."""
        return [] if self._moved is None else [version.id for version in self._moved.both]

    async def start(self) -> None:
        """Raises `ServiceError`, `BrokerUnavailable`."""
        redis_port = self.gates.redis[0].target_port if self.gates is not None else 0
        redis = self._redis = self._services.enter_context(EmbeddedRedis(port=redis_port))
        kafka: KafkaBroker | KafkaCluster = self._one_broker() if self.brokers == 1 else KafkaCluster()
        self._services.callback(kafka.stop)
        self._kafka = kafka.start()
        self._struck = Brokers(kafka, self._note)
        settings = self.kafka_settings
        topics = settings.topics.all(
            request_partitions=settings.request_partitions, reply_partitions=settings.reply_partitions
        )
        await create_topics(settings, topics)
        common = {
            **ENV,
            **OWN_SERVICES,
            "GATEWAY__CURSOR_SECRET_FILE": str(CURSOR_SECRET),
            **({"WORKER__STEP_LIMIT_S": f"{_STEP_LIMIT_S:g}"} if self.hangs else {}),
        }
        if self.versions:
            env = common | self._ways(0, kafka.bootstrap, redis)
            self._moved = Versions(settings=settings, env=env, logs=self.logs)
            self._services.callback(self._moved.stop)
            await self._moved.start()
        for number in range(GATEWAYS):
            env = {"GATEWAY__REPLY_PARTITION": str(number)} | self._ways(number, kafka.bootstrap, redis)
            env |= self._rack(number)
            self._gateways.append(self._member(f"gateway-{number}", "gateway", common | env))
        for number in range(ZONES if self.zones else WORKERS):
            # One worker is a static member of the group, which gets its previous partitions again; the other leaves and
            # joins.
            env = {"WORKER__INSTANCE_ID": "" if number else "chaos-0"}
            env |= self._ways(min(GATEWAYS + number, MEMBERS - 1), kafka.bootstrap, redis) | self._rack(number)
            self._workers.append(self._member(f"worker-{number}", "workers", common | env))
        comers = common | self._ways(0, kafka.bootstrap, redis)
        self._scaling = Scaling(
            gateways=self._gateways,
            workers=self._workers,
            brokers=self._brokers,
            make=lambda name: self._member(name, "workers", comers),
            launch=self._launch,
            note=self._note,
        )
        for lane in LANES if self.versions else ():
            env = {"WORKER__LANE": lane} | self._ways(0, kafka.bootstrap, redis)
            self._beside.append(self._member(f"worker-{lane}", "workers", common | env))
        for member in self._members:
            member.launch()
        await self.ready()

    async def ready(self) -> None:
        """Wait until every process is ready. Raises `ServiceError`, also if one ended by itself."""
        for member in self._members:
            await member.ready()

    @property
    def _members(self) -> list[Member]:
        return [
            *self._gateways,
            *self._workers,
            *self._beside,
            *(self._scaling.comers if self._scaling is not None else ()),
        ]

    def _rack(self, zone: int) -> dict[str, str]:
        return {"KAFKA__CLIENT_RACK": rack_of(zone + 1)} if self.zones else {}

    def _ways(self, number: int, bootstrap: str, redis: EmbeddedRedis) -> dict[str, str]:
        """Return the addresses of Kafka and Redis for a gateway or worker."""
        if self.gates is None:
            return {"KAFKA__BOOTSTRAP_SERVERS": bootstrap, "REDIS__URL": redis.url}
        by_proxy = redis.url.replace(f"127.0.0.1:{redis.port}", f"127.0.0.1:{self.gates.redis[number].port}")
        return {"KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{self.gates.kafka[number].port}", "REDIS__URL": by_proxy}

    def _one_broker(self) -> KafkaBroker:
        if self.gates is None:
            return KafkaBroker()
        port, controller_port = free_port(), free_port()
        ways = [(proxy.target_port, proxy.port) for proxy in self.gates.kafka]
        settings = kafka_listeners(port, controller_port, ways)
        return KafkaBroker(port=port, controller_port=controller_port, settings=settings)

    def _member(self, name: str, module: str, env: dict[str, str]) -> Member:
        port = metrics_port = free_port()
        ports = {"WORKER__METRICS_PORT": str(metrics_port)}
        if module == "gateway":
            metrics_port = free_port()
            ports = {"GATEWAY__PORT": str(port), "GATEWAY__METRICS_PORT": str(metrics_port)}
        return Member(
            name=name,
            module=module,
            port=port,
            metrics_port=metrics_port,
            env=env | ports,
            log=self.logs / f"{name}.log",
            clock=self.logs / f"{name}.clock" if self.clocks else None,
            hang=self.logs / f"{name}.hang" if self.hangs and module == "workers" else None,
        )

    async def strike(self, fault: Fault) -> None:
        """Kill, wait, start again; return when all processes run again.

        Faults of the same group wait for each other. Raises `ServiceError` if a process does not start again.
        """
        async with AsyncExitStack() as stack:
            for name in taken_by(fault):
                await stack.enter_async_context(self._lock(name))
            at_s = time.monotonic()
            if await self._way_of(fault.kind)(fault):
                self.strikes.append(Strike(fault.kind, at_s, time.monotonic() - at_s))

    def _way_of(self, kind: Kind) -> Callable[[Fault], Awaitable[bool]]:
        if kind in SCALED:
            assert self._scaling is not None, "start comes first"
            return self._scaling.carry_out
        return self._move_versions if kind in VERSIONS else self._carry_out

    async def _carry_out(self, fault: Fault) -> bool:
        """Return whether there was anything to hit."""
        match fault.kind:
            case Kind.WORKER | Kind.GATEWAY:
                members = self._workers if fault.kind is Kind.WORKER else self._gateways
                await self._kill(members[fault.target], fault.down_s)
            case Kind.HANG | Kind.SEGFAULT:
                return await self._hang(self._workers[fault.target], fault)
            case Kind.REBALANCE:
                await self._replace(self._workers[-1], fault.down_s)
            case Kind.ROLL:
                await self._roll()
            case Kind.REDIS:
                await self._kill_redis(fault.down_s)
            case Kind.BROKER:
                await self._brokers.kill(fault.target, fault.down_s)
            case Kind.DISK_FULL:
                await self._brokers.fill_disk(fault.target, fault.down_s)
            case Kind.CLOCK_SKEW:
                await self._turn_clock(fault)
            case Kind.CLOCK_WRONG:
                await self._begin_wrong(fault)
            case _:
                raise AssertionError(f"{fault.kind} is no matter of processes")
        return True

    async def _move_versions(self, fault: Fault) -> bool:
        assert self._moved is not None, "there for these"
        self._note(f"{fault.kind} begins")
        match fault.kind:
            case Kind.SWITCH:
                self._note(await self._moved.switch())
            case Kind.ROLLBACK:
                await self._moved.rollback(fault.down_s)
            case _:
                await self._moved.kill_controller(fault.down_s)
        self._note(f"{fault.kind} over")
        return True

    async def _roll(self) -> None:
        """Each process in turn, the next when the one before is ready: as a deployment does."""
        for kind, members in ((Kind.GATEWAY, self._gateways), (Kind.WORKER, self._workers)):
            for member in members:
                async with self._lock(kind):
                    if not await self._replace(member, 0.0):
                        raise ServiceError(f"{member.name} is still there {STOP_S:.0f} s after SIGTERM")

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _kill(self, member: Member, down_s: float) -> None:
        member.kill()
        self._note(f"{member.name} killed")
        await asyncio.sleep(down_s)
        await self._launch(member)

    async def _hang(self, member: Member, fault: Fault) -> bool:
        """Return whether its engine reached a step in which to hang or crash. Raises `ServiceError` if the worker does
        not leave by itself."""
        if not await member.hangs(_STEP_COMES_S, crashes=fault.kind is Kind.SEGFAULT):
            self._note(f"{member.name}'s engine was given nothing to do: no {fault.kind}")
            return False
        self._note(f"{member.name}'s engine: {fault.kind}")
        if not await member.gone(_HANG_ENDS_S):
            raise ServiceError(f"{member.name} has not ended by itself within {_HANG_ENDS_S:.0f} s of its {fault.kind}")
        self._note(f"{member.name} has ended by itself")
        await asyncio.sleep(fault.down_s)
        await self._launch(member)
        return True

    async def _replace(self, member: Member, down_s: float) -> bool:
        """Whether it went by itself."""
        went = await self._ask_to_go(member)
        await asyncio.sleep(down_s)
        await self._launch(member)
        return went

    async def _ask_to_go(self, member: Member) -> bool:
        """Whether it did."""
        self._note(f"{member.name} asked to go")
        went = await member.leave()
        self._note(f"{member.name} gone" if went else f"{member.name} did not go and was killed")
        return went

    async def _launch(self, member: Member) -> None:
        member.launch()
        self._note(f"{member.name} started")
        await member.ready()
        self._note(f"{member.name} ready")

    async def _kill_redis(self, down_s: float) -> None:
        assert self._redis is not None, "start comes first"
        self._redis.kill()
        self._note("redis killed")
        await asyncio.sleep(down_s)
        self._redis.start()
        self._note("redis ready, empty")

    async def _turn_clock(self, fault: Fault) -> None:
        """It jumps, and jumps back. A process killed in between restarts with the wrong time."""
        member, offset_s = self._clock_of(fault)
        self._set_clock(member, offset_s)
        await asyncio.sleep(fault.down_s)
        self._set_clock(member, 0.0)
        await asyncio.sleep(READ_EVERY_S)

    async def _begin_wrong(self, fault: Fault) -> None:
        """Its clock is wrong from its start, and so are its promises; then it is restarted with the right one."""
        member, offset_s = self._clock_of(fault)
        for off_s, down_s in ((offset_s, fault.down_s), (0.0, 0.0)):
            await self._ask_to_go(member)
            self._set_clock(member, off_s)
            await self._launch(member)
            await asyncio.sleep(down_s)

    def _clock_of(self, fault: Fault) -> tuple[Member, float]:
        """Return the member whose clock is wrong, and the error in seconds."""
        member = [*self._gateways, *self._workers][member_of(fault.target)]
        return member, clock_off_s(fault.target)

    def _set_clock(self, member: Member, offset_s: float) -> None:
        assert member.clock is not None, "it can be wrong"
        turn(member.clock, offset_s)
        self._note(f"{member.name}'s clock is " + (f"{offset_s:+.0f} s off" if offset_s else "right again"))

    def _note(self, what: str) -> None:
        self.lines.append(Line(time.monotonic(), what))

    def keep_evidence(self, error: Exception) -> None:
        """After an error, keep the processes' logs if they are not empty, and name their folder unless the error names
        it."""
        if not any(self.logs.iterdir()):
            return
        self.keep_logs = True
        if str(self.logs) not in str(error):
            print(f"the processes' logs: {self.logs}", file=sys.stderr)

    def stop(self) -> None:
        """Stop gateways first, then workers, then Kafka and Redis. May be called again."""
        for member in self._members:
            if member.child is not None:
                member.child.stop(timeout_s=STOP_S)
        self._services.close()
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.keep_evidence(error)
        self.stop()
