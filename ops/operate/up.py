"""`replyline up`: run everything on this machine, in one process tree, with embedded Kafka and Redis.

The gateway and the worker are the same processes as in production, run as children; the broker's mock cluster runs in
this process. On a terminal a few lines show the page, questions to ask and the log's path; elsewhere, or with `--json`,
the log's JSON lines are printed, and the line `ready` has the addresses. A shell reads them from a file of variables
(`ops/stack/demo_env.py`). A gateway or worker that dies is restarted (`ops/stack/restarts.py`). Ctrl-C drains the
gateway, then the worker, and leaves only the log.
"""

import asyncio
import errno
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final, Self, TextIO

from ops.model.embeddings import embeddings_env
from ops.operate.diagnose.pages import parse_page
from ops.stack.checkout import demo_command
from ops.stack.demo_env import RUN_DIR, demo_env, demo_env_path, stdout_to
from ops.stack.embedded import EMBEDDED_KAFKA_SETTINGS, EMBEDDED_PARTITIONS, EmbeddedKafka, EmbeddedRedis
from ops.stack.own_pages import open_page
from ops.stack.own_services import OWN_SERVICES
from ops.stack.port_use import another_port, is_replyline, listen_problem
from ops.stack.processes import Child, ServiceError, free_port
from ops.stack.readiness import wait_ready
from ops.stack.restarts import DEATHS, WITHIN_S, Restarts
from shared.process.modules import module_command
from shared.settings import PREFIX, Settings
from shared.settings.gateway import GatewaySettings
from shared.settings.redis import without_password
from shared.sockets.listening import ListenAddress, host_port
from shared.telemetry.logs import configure_logs, get_logger
from shared.wire.lanes import CHAMPION, LANES

_POLL_S: Final = 0.05
_MARGIN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The system's addresses. `host` and `port` are for customers; `redis` includes the password; `desk` is set if
    conversations are handed to people."""

    host: str
    port: int
    gateway_metrics: tuple[str, int]
    worker_metrics: tuple[str, int]
    page: str
    ws: str
    openai: str
    ai_sdk: str
    desk: str | None = None
    grpc: str
    kafka: str
    redis: str

    @property
    def metrics(self) -> tuple[str, str]:
        """The metrics pages of the gateway and of the worker."""
        gateway, worker = (f"http://{host_port(*at)}/metrics" for at in (self.gateway_metrics, self.worker_metrics))
        return gateway, worker

    def environment(self) -> dict[str, str]:
        """Return the environment of a command that uses or inspects this system. It overrides all other settings of
        Kafka and Redis."""
        return {
            **{PREFIX + name: value for name, value in {**OWN_SERVICES, **EMBEDDED_KAFKA_SETTINGS}.items()},
            f"{PREFIX}KAFKA__BOOTSTRAP_SERVERS": self.kafka,
            f"{PREFIX}REDIS__URL": self.redis,
            f"{PREFIX}GATEWAY__HOST": self.host,
            f"{PREFIX}GATEWAY__PORT": str(self.port),
            f"{PREFIX}GATEWAY__METRICS_HOST": self.gateway_metrics[0],
            f"{PREFIX}GATEWAY__METRICS_PORT": str(self.gateway_metrics[1]),
            f"{PREFIX}WORKER__METRICS_HOST": self.worker_metrics[0],
            f"{PREFIX}WORKER__METRICS_PORT": str(self.worker_metrics[1]),
            f"{PREFIX}URL": self.ws,
            "OPENAI_BASE_URL": self.openai,
            "AI_SDK_URL": self.ai_sdk,
            "GRPC_ADDRESS": self.grpc,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """The ports of the gateway and the worker: those of the settings, or free ones."""

    gateway: int
    http: int
    grpc: int
    gateway_metrics: int
    worker_metrics: int

    @classmethod
    def of(cls, gateway: GatewaySettings) -> Self:
        """Choose the ports. Raises `ServiceError` and `ListenError` if a configured one cannot be used."""
        check_ports(gateway)
        return cls(
            gateway=gateway.port or free_port(),
            http=gateway.http_port or free_port(),
            grpc=gateway.grpc_port or free_port(),
            gateway_metrics=free_port(),
            worker_metrics=free_port(),
        )

    def variables(self) -> dict[str, str]:
        return {
            "GATEWAY__PORT": str(self.gateway),
            "GATEWAY__HTTP_PORT": str(self.http),
            "GATEWAY__GRPC_PORT": str(self.grpc),
            "GATEWAY__METRICS_PORT": str(self.gateway_metrics),
            "WORKER__METRICS_PORT": str(self.worker_metrics),
        }


class EmbeddedSystem:
    """Kafka, Redis, one gateway, one worker. Use it as a context manager; `start` returns when all are ready."""

    def __init__(
        self,
        settings: Settings,
        *,
        env: dict[str, str] | None = None,
        share_output: bool = True,
        redis: Sequence[str] = (),
        terminal: TextIO | None = None,
        reasons: str = "the lines above",
    ) -> None:
        """Prepare the system.

        Args:
            settings: the settings of all parts
            env: additional environment of the gateway and the worker
            share_output: the parts write to this process's stdout and stderr; otherwise their output is discarded
            redis: additional lines of the Redis configuration
            terminal: where a person is shown which part died and is restarted
            reasons: where the parts' own messages are, for error messages
        """
        self._settings = settings
        self._terminal = terminal
        self._reasons = reasons
        self._redis_lines = redis
        self._env = env or {}
        self._restarts: dict[str, Restarts] = defaultdict(Restarts)
        self._share_output = share_output
        self._services = ExitStack()
        self._redis: EmbeddedRedis | None = None
        self.gateway: Child | None = None
        self.worker: Child | None = None

    async def start(self) -> Addresses:
        """Start all parts. Raises `ServiceError` if a part cannot be started; `stop` ends those that were."""
        ports = _Ports.of(self._settings.gateway)
        kafka = self._services.enter_context(EmbeddedKafka())
        topics = self._settings.kafka.topics
        kafka.create(topics.all(request_partitions=EMBEDDED_PARTITIONS, reply_partitions=EMBEDDED_PARTITIONS))
        for lane in (lane for lane in LANES if lane != CHAMPION):  # workers cannot create topics on this broker
            kafka.create(topics.of_lane(lane, request_partitions=EMBEDDED_PARTITIONS))
        redis = self._redis = self._services.enter_context(EmbeddedRedis(settings=self._redis_lines))
        services = {**OWN_SERVICES, **EMBEDDED_KAFKA_SETTINGS, **embeddings_env(self._settings)}
        own = {
            **services,
            "GATEWAY__REPLY_PARTITION": "0",
            "AUTH__MODE": self._settings.auth.decided_mode or "anonymous",
            "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap,
            "REDIS__URL": redis.url,
            **ports.variables(),
        }
        self._env = {**self._env, **{PREFIX + name: value for name, value in own.items()}}
        addresses = self._addresses(ports, kafka=kafka.bootstrap, redis=redis.url)
        self.gateway = self._run("gateway")
        self.worker = self._run("workers")
        for child, at, name in (
            (self.gateway, addresses.gateway_metrics, "the gateway"),
            (self.worker, addresses.worker_metrics, "the worker"),
        ):
            await wait_ready(child, f"http://{host_port(*at)}/ready", name, reasons=self._reasons)
        return addresses

    def _addresses(self, ports: _Ports, *, kafka: str, redis: str) -> Addresses:
        host = self._settings.gateway.host
        http = f"http://{host_port(host, ports.http)}"
        return Addresses(
            host=host,
            port=ports.gateway,
            gateway_metrics=(self._settings.gateway.metrics_host, ports.gateway_metrics),
            worker_metrics=(self._settings.worker.metrics_host, ports.worker_metrics),
            page=f"http://{host_port(host, ports.gateway)}/",
            ws=f"ws://{host_port(host, ports.gateway)}/ws",
            openai=f"{http}/v1",
            ai_sdk=f"{http}/ai-sdk/chat",
            desk=f"{http}/desk" if self._settings.handoff.enabled else None,
            grpc=host_port(host, ports.grpc),
            kafka=kafka,
            redis=redis,
        )

    def _run(self, module: str) -> Child:
        return Child.start(module_command(module), env=self._env, share_output=self._share_output)

    def stop(self) -> None:
        """Stop the gateway first, so that no new questions arrive, then the worker, then the services. Each has its
        drain time, plus a request's timeout for what it has begun with Kafka."""
        beyond_s = self._settings.kafka.request_timeout_ms / 1_000 + _MARGIN_S
        for child, drain_s in (
            (self.gateway, self._settings.gateway.drain_s),
            (self.worker, self._settings.worker.drain_s),
        ):
            if child is not None:
                child.stop(timeout_s=drain_s + beyond_s)
        self._services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def watch(self, stop: asyncio.Event) -> None:
        """Watch the parts until `stop`, and restart a gateway or worker that dies. Raises `ServiceError` if one dies
        too often, or if Redis dies, because its data is lost."""
        while not stop.is_set():
            if self.gateway is not None and not self.gateway.running:
                self.gateway = await self._again("gateway", "gateway", self.gateway, stop)
            if self.worker is not None and not self.worker.running:
                self.worker = await self._again("worker", "workers", self.worker, stop)
            if self._redis is not None and not self._redis.running:
                raise ServiceError("the embedded Redis ended")
            await _wait(stop, _POLL_S * 4)

    async def _again(self, part: str, module: str, dead: Child, stop: asyncio.Event) -> Child:
        """Return a new child after a delay, or the dead one if `stop` is set first."""
        wait_s = self._restarts[part].died(time.monotonic())
        if wait_s is None:
            raise ServiceError(
                f"the {part} {dead.ending}, and ended {DEATHS} times in {WITHIN_S:.0f} s; see {self._reasons}"
            )
        cause = f"the {part} {dead.ending}"
        get_logger().error("part_ended", cause=cause, pid=dead.process.pid, restart_in_s=wait_s)
        if self._terminal is not None:
            print(f"{cause}; it starts again in {wait_s:.0f} s; see {self._reasons}", file=self._terminal)
        await _wait(stop, wait_s)
        return dead if stop.is_set() else self._run(module)


async def _wait(stop: asyncio.Event, limit_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await stop.wait()


def check_ports(gateway: GatewaySettings, command: Callable[[int], str] = demo_command) -> None:
    """Raise `ServiceError` or `ListenError` if a configured port cannot be used. `command` returns the command for
    another port."""
    if gateway.port:
        _check_port(gateway.host, gateway.port, command)
    for name in ("http_port", "grpc_port"):
        if getattr(gateway, name):
            ListenAddress.of_settings("gateway", gateway, name).listen().close()


def _check_port(host: str, port: int, command: Callable[[int], str] = demo_command) -> None:
    """Raise `ServiceError` if the gateway cannot listen on this address."""
    problem = listen_problem(host, port)
    if problem is None:
        return
    if problem.errno == errno.EADDRINUSE:
        user = " by another Replyline; use that one, or choose" if is_replyline(host, port) else "; choose"
        raise ServiceError(f"port {port} is in use on {host}{user} another: {command(another_port(port))}")
    why = (problem.strerror or str(problem)).partition(" (while ")[0]
    raise ServiceError(
        f"the gateway cannot listen on {host_port(host, port)} ({why}); set {PREFIX}GATEWAY__HOST to an address "
        f"of this machine, or choose another port: {command(another_port(port))}"
    )


async def up(
    settings: Settings,
    stop: asyncio.Event,
    *,
    env: dict[str, str] | None = None,
    redis: Sequence[str] = (),
    as_json: bool = True,
) -> None:
    """Run the system until `stop`.

    Args:
        settings: the settings of all parts
        stop: ends the system
        env: additional environment of the gateway and the worker
        redis: additional lines of the embedded Redis' configuration
        as_json: print the log's lines; otherwise they go to a file, and a few lines for a person are printed

    Raises:
        ServiceError: a part cannot be started, or died too often
        ListenError: a configured port cannot be used
    """
    check_ports(settings.gateway)  # before this truncates the log of a demo that runs at the same port
    with ExitStack() as files:
        terminal = log = None
        if not as_json:
            log = demo_env_path(RUN_DIR, settings.gateway.port).with_suffix(".log")
            terminal = files.enter_context(stdout_to(log))
            configure_logs(settings.log, process="up")  # again: JSON, since stdout is a file now
            print("replyline: starting Kafka, Redis, a gateway and a worker with the model", file=terminal)
        reasons = "the lines above" if log is None else str(log)
        system = files.enter_context(EmbeddedSystem(settings, env=env, redis=redis, terminal=terminal, reasons=reasons))
        starting = asyncio.create_task(system.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return
        addresses = starting.result()
        with ExitStack() as env_file:
            engine = await asyncio.to_thread(computing, addresses.metrics[1])
            _log_ready(addresses, engine, _env_file(env_file, addresses))
            if terminal is not None:
                print(_for_a_person(addresses, engine, log), file=terminal)
            await system.watch(stop)
        if terminal is not None:
            print("\nreplyline: finishing open answers; Ctrl-C again ends it immediately", file=terminal)


def _log_ready(addresses: Addresses, engine: str, env: str | None) -> None:
    get_logger().info(
        "ready",
        engine=engine,
        page=addresses.page,
        ws=addresses.ws,
        openai=addresses.openai,
        ai_sdk=addresses.ai_sdk,
        **({} if addresses.desk is None else {"desk": addresses.desk}),
        grpc=addresses.grpc,
        kafka=addresses.kafka,
        redis=without_password(addresses.redis),
        metrics=list(addresses.metrics),
        env=env,
    )


def _for_a_person(addresses: Addresses, engine: str, log: Path | None) -> str:
    """Return where the page is, what to type next, and how it ends."""
    command = Path(sys.argv[0])
    here = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    desk = "" if addresses.desk is None else f"\nThe desk where people answer:  {addresses.desk}"
    return f"""
The shop's page with the chat:  {addresses.page}{desk}

Or ask in another terminal, from this folder:
    {here} ask "How long do refunds take?"
    {here} ask "Do you sell gift cards?"

Engine: {engine}. Log: {log}. Ctrl-C ends it."""


def _env_file(files: ExitStack, addresses: Addresses) -> str | None:
    """Write the file of variables and return its name. If it cannot be written, log that and return None; the demo
    works without it."""
    try:
        path = files.enter_context(demo_env(demo_env_path(RUN_DIR, addresses.port), addresses.environment()))
    except OSError as error:
        get_logger().warning("env_file_not_written", cause=str(error))
        return None
    return str(path)


def computing(metrics: str) -> str:
    """Return the engine and kernel shown in a worker's metrics; empty if the page cannot be read."""
    try:
        with open_page(metrics, timeout_s=1) as page:
            series = parse_page(page.read().decode()).series
    except (OSError, HTTPException, ValueError):
        return ""
    return next((dict(labels)["engine"] for labels in series.get("replyline_worker_model_info", {})), "")
