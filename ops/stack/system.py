"""The system that a bench measures: a broker, Redis, and gateways and workers. All of them are stopped with it."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from ops.stack.embedded import EMBEDDED_KAFKA_SETTINGS, EMBEDDED_PARTITIONS, EmbeddedKafka, EmbeddedRedis
from ops.stack.kafka_broker import KafkaBroker
from ops.stack.own_services import OWN_SERVICES, Broker, own_kafka
from ops.stack.processes import Child, ServiceError, free_port, running_on
from ops.stack.readiness import wait_ready
from shared.kafka import create_topics
from shared.process.modules import module_command
from shared.settings import PREFIX, Settings
from shared.wire.lanes import Lane

READY: Final = "ready"
_START_S: Final = 60.0
_LOG_LINES: Final = 5
# A load is not a customer, so limits on clients are lifted. The load asks questions that no FAQ answers, so the model
# answers all of them.
_UNLIMITED: Final = {
    "AUTH__MODE": "anonymous",
    "AUTH__SECRET_FILE": "",
    "AUTH__JWKS": "",
    "GATEWAY__MESSAGES_PER_MINUTE": "1000000",
    "GATEWAY__MAX_INFLIGHT": "100000",
    "GATEWAY__MAX_CONNECTIONS": "100000",
    "QUOTAS__ADDRESS_PER_MINUTE": "0",
    "ANSWERS__POLICY": "model",
    "ANSWERS__GUARD": "false",
    "ANSWERS__HISTORY_TOKENS": "1048576",
    "HANDOFF__ENABLED": "true",
}


@dataclass(slots=True, kw_only=True)
class System:
    """A system; use it as a context manager.

    Attributes:
        env: settings by their names without the prefix: `WORKER__ENGINE`
        redis_url: an existing Redis; if empty, the system starts one
        lanes: lanes whose topics the embedded broker has as well
    """

    settings: Settings
    broker: Broker
    env: Mapping[str, str] = field(default_factory=dict)
    service_cores: Sequence[int] | None = None
    bootstrap: str = ""
    redis_url: str = ""
    lanes: Sequence[Lane] = ()
    _logs: Path | None = None
    _services: ExitStack = field(default_factory=ExitStack)
    _children: list[Child] = field(default_factory=list)
    _pages: dict[int, str] = field(default_factory=dict)

    async def start_services(self) -> None:
        """Start the broker with its topics, and Redis. Raises `ServiceError` with the command to type."""
        self._logs = Path(tempfile.mkdtemp(prefix="replyline-bench-"))
        with running_on(self.service_cores):
            if not self.redis_url:
                self.redis_url = self._services.enter_context(EmbeddedRedis()).url
            kafka = self.settings.kafka
            if self.broker == "embedded":  # like `replyline up`
                embedded = self._services.enter_context(EmbeddedKafka())
                one = EMBEDDED_PARTITIONS
                topics = kafka.topics.all(request_partitions=one, reply_partitions=one)
                for lane in self.lanes:
                    topics.update(kafka.topics.of_lane(lane, request_partitions=one))
                embedded.create(topics)
                self.bootstrap = embedded.bootstrap
                return
            self.bootstrap = self._services.enter_context(KafkaBroker()).bootstrap
        await self.create_topics(
            kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)
        )

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        await create_topics(own_kafka(self.settings.kafka, self.bootstrap), topics)

    async def start_gateway(
        self, *, env: Mapping[str, str] | None = None, cores: Sequence[int] | None = None
    ) -> tuple[Child, str]:
        """Start a gateway with additional settings. Return its process and its WebSocket address. Raises
        `ServiceError`."""
        port, metrics_port = free_port(), free_port()
        own = {"GATEWAY__HOST": "127.0.0.1", "GATEWAY__PORT": str(port), "GATEWAY__METRICS_PORT": str(metrics_port)}
        child = self._start("gateway", env={**(env or {}), **own}, cores=cores)
        self._pages[child.process.pid] = f"http://127.0.0.1:{metrics_port}"
        await self._until_ready(child, f"{self._pages[child.process.pid]}/ready", "gateway")
        return child, f"ws://127.0.0.1:{port}/ws"

    async def start_worker(self, *, env: Mapping[str, str] | None = None) -> tuple[Child, str]:
        """Start a worker with additional settings. Return its process and the address of its metrics. Raises
        `ServiceError`."""
        port = free_port()
        named = {**(env or {}), "WORKER__METRICS_PORT": str(port)}
        name = f"workers-{port}"
        child = self._start("workers", env=named, name=name)
        self._pages[child.process.pid] = f"http://127.0.0.1:{port}"
        await self._until_ready(child, f"{self._pages[child.process.pid]}/ready", name)
        return child, self.metrics_of(child)

    async def start_program(
        self, module: str, *args: str, name: str | None = None, cores: Sequence[int] | None = None
    ) -> Child:
        """Run `python -m module args`; return when it has printed `ready`. `name` distinguishes two processes of one
        module.

        Raises `ServiceError`.
        """
        log = self._log(name or module)
        before = log.stat().st_size if log.exists() else 0  # skip the output of an earlier process with this name
        child = self._start(module, *args, name=name, cores=cores)
        for _ in range(int(_START_S / 0.05)):
            if READY.encode() in log.read_bytes()[before:].splitlines():
                return child
            if not child.running:
                break
            await asyncio.sleep(0.05)
        raise ServiceError(f"{module} did not start: {self._log_tail(name or module)}")

    def metrics_of(self, child: Child) -> str:
        """Return the address of a gateway's or worker's metrics."""
        return f"{self._pages[child.process.pid]}/metrics"

    def end(self, child: Child) -> None:
        """Stop one process before the others."""
        child.stop(timeout_s=15)
        self._children.remove(child)

    def _start(
        self,
        module: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        cores: Sequence[int] | None = None,
    ) -> Child:
        named = {**_UNLIMITED, **OWN_SERVICES, **self.env, **(env or {})}
        named["KAFKA__BOOTSTRAP_SERVERS"] = self.bootstrap
        named["REDIS__URL"] = self.redis_url
        if self.broker == "embedded":
            named.update(EMBEDDED_KAFKA_SETTINGS)
        environ = {PREFIX + name: value for name, value in named.items()}
        with running_on(cores):
            child = Child.start(module_command(module, *args), env=environ, log=self._log(name or module))
        self._children.append(child)
        return child

    async def _until_ready(self, child: Child, url: str, module: str) -> None:
        try:
            await wait_ready(child, url, f"the {module} process")
        except ServiceError as error:
            raise ServiceError(f"{error} {self._log_tail(module)}") from None

    def _log(self, module: str) -> Path:
        assert self._logs is not None, "call start_services first"
        return self._logs / f"{module}.log"

    def _log_tail(self, module: str) -> str:
        log = self._log(module)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return " | ".join(lines[-_LOG_LINES:]) or "no output"

    def stop(self) -> None:
        """Stop the processes in reverse order of their start, then the services. May be called again."""
        while self._children:
            self._children.pop().stop(timeout_s=15)
        self._services.close()
        if self._logs is not None:
            shutil.rmtree(self._logs, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
