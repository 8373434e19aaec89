"""`replyline up`: everything on this machine, in one process tree, with embedded Kafka and Redis.

The gateway and the worker are the very processes that production runs, as children; the broker's mock cluster lives in
this process. One line `ready` gives the addresses. Ctrl-C drains the gateway, then the worker, and leaves nothing.
"""

import asyncio
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self

from ops.doctor import can_listen
from ops.embedded import EMBEDDED_KAFKA_SETTINGS, EMBEDDED_PARTITIONS, EmbeddedKafka, EmbeddedRedis
from ops.embeddings import embeddings_env
from ops.own_services import OWN_SERVICES
from ops.processes import Child, ServiceError, free_port
from shared.logs import get_logger
from shared.redis_settings import without_password
from shared.settings import PREFIX, Settings

_START_S: Final = 60.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Addresses:
    page: str
    ws: str
    kafka: str
    redis: str
    metrics: tuple[str, str]


class EmbeddedSystem:
    """Kafka, Redis, one gateway, one worker. Use as a context manager; `start` returns when all are ready."""

    def __init__(self, settings: Settings, *, env: dict[str, str] | None = None, share_output: bool = True) -> None:
        self._settings = settings
        self._env = env or {}
        self._share_output = share_output
        self._services = ExitStack()
        self.gateway: Child | None = None
        self.worker: Child | None = None

    async def start(self) -> Addresses:
        """Raises `ServiceError` where a part cannot be started; what was started is ended by `stop`."""
        gateway = self._settings.gateway
        port = gateway.port or free_port()
        if not can_listen(gateway.host, port):
            raise ServiceError(f"port {port} is taken on {gateway.host}; choose another: PORT={port + 1} make demo")
        kafka = self._services.enter_context(EmbeddedKafka())
        topics = self._settings.kafka.topics
        kafka.create(topics.all(request_partitions=EMBEDDED_PARTITIONS, reply_partitions=EMBEDDED_PARTITIONS))
        redis = self._services.enter_context(EmbeddedRedis())
        metrics_port = free_port()
        env = {
            **self._env,
            **{
                PREFIX + name: value
                for name, value in {**OWN_SERVICES, **EMBEDDED_KAFKA_SETTINGS, **embeddings_env(self._settings)}.items()
            },
            f"{PREFIX}GATEWAY__REPLY_PARTITION": "0",
            f"{PREFIX}AUTH__MODE": self._settings.auth.decided_mode or "anonymous",
            f"{PREFIX}KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap,
            f"{PREFIX}REDIS__URL": redis.url,
            f"{PREFIX}GATEWAY__PORT": str(port),
            f"{PREFIX}WORKER__METRICS_PORT": str(metrics_port),
        }
        self.gateway = self._run("gateway", env)
        self.worker = self._run("workers", env)
        pages = (f"http://{gateway.host}:{port}", f"http://{self._settings.worker.metrics_host}:{metrics_port}")
        await wait_ready(self.gateway, f"{pages[0]}/ready", "the gateway")
        await wait_ready(self.worker, f"{pages[1]}/ready", "the worker")
        return Addresses(
            page=f"{pages[0]}/",
            ws=f"ws://{gateway.host}:{port}/ws",
            kafka=kafka.bootstrap,
            redis=redis.url,
            metrics=(f"{pages[0]}/metrics", f"{pages[1]}/metrics"),
        )

    def _run(self, module: str, env: dict[str, str]) -> Child:
        return Child.start([sys.executable, "-m", module], env=env, share_output=self._share_output)

    def stop(self) -> None:
        """The edge first, so that nothing new comes; then the worker; then what they stood on."""
        limit_s = self._settings.gateway.drain_s + 5
        for child in (self.gateway, self.worker):
            if child is not None:
                child.stop(timeout_s=limit_s)
        self._services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop`. Raises `ServiceError` when a part ends by itself."""
        while not stop.is_set():
            for name, child in (("gateway", self.gateway), ("worker", self.worker)):
                if child is not None and not child.running:
                    raise ServiceError(f"the {name} ended with status {child.process.returncode}")
            try:
                async with asyncio.timeout(_POLL_S * 4):
                    await stop.wait()
            except TimeoutError:
                continue


async def up(settings: Settings, stop: asyncio.Event) -> None:
    """Raises `ServiceError`."""
    with EmbeddedSystem(settings) as system:
        starting = asyncio.create_task(system.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return
        addresses = starting.result()
        get_logger().info(
            "ready",
            page=addresses.page,
            ws=addresses.ws,
            kafka=addresses.kafka,
            redis=without_password(addresses.redis),
            metrics=list(addresses.metrics),
        )
        await system.watch(stop)


async def wait_ready(child: Child, url: str, name: str) -> None:
    deadline_s = time.monotonic() + _START_S
    while not await asyncio.to_thread(_is_ready, url):
        if not child.running:
            raise ServiceError(f"{name} ended with status {child.process.returncode}; its reason stands above")
        if time.monotonic() > deadline_s:
            raise ServiceError(f"{name} is not ready after {_START_S:.0f} s; its reason stands above")
        await asyncio.sleep(_POLL_S)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:  # noqa: S310 - an http address of our own making
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False
