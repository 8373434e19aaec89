"""Redis for the event loop: one server, or the nodes of a cluster, whose redirections are followed.

redis-py's own cluster client does not serve here: it sends ASKING on one connection of a pool and the command on
another, so that nothing reaches a slot that is being moved; and it raises where a burst finds no free connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.redis.client import MAX_CONNECTIONS, async_redis, seed_of
from shared.redis.slots import Node, SlotMap
from shared.settings.redis import RedisAddress

T = TypeVar("T")
Command = Callable[[Redis], Awaitable[T]]

_REDIRECTIONS: Final = 8
_AGAIN_S: Final = 0.01


@dataclass(slots=True)
class _Server:
    """One server's connections."""

    client: Redis
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONNECTIONS))

    async def ask(self, command: Command[T]) -> T:
        async with self._free:
            return await command(self.client)


class RedisNodes:
    """Each call names the key that it is about. Who calls bounds how long it may take (`RedisCalls`).

    Of each server no more is asked at once than it has connections; whoever comes then waits for one.

    A call whose keys are being moved waits until they are; one whose node is gone fails, and the next one knows the
    node that serves in its place.
    """

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._seed = seed_of(settings)
        self._slots = SlotMap(self._seed)
        self._servers: dict[Node | None, _Server] = {}
        self._learning: asyncio.Task[None] | None = None
        self._server(None)  # raises `SettingsError` where the URL is none

    async def call(self, key: str, command: Command[T]) -> T:
        """Raises `RedisError`, `OSError`."""
        if not self._settings.cluster:
            return await self._server(None).ask(command)
        for _ in range(_REDIRECTIONS):
            node = self._slots.of(key)
            try:
                return await self._until_moved(lambda node=node: self._server(node).ask(command))  # type: ignore[misc]
            except MovedError as moved:
                self._slots.moved(moved.slot_id, self._named(moved, node))
                self._learn()
            except AskError as ask:
                server = self._server(self._named(ask, node))
                return await self._until_moved(lambda server=server: server.ask(_asking(command)))  # type: ignore[misc]
            except (RedisConnectionError, RedisTimeoutError, OSError, asyncio.CancelledError):  # gone, or it hangs
                self._learn()
                raise
        raise RedisError(f"{_REDIRECTIONS} redirections, and no node serves {node.host}:{node.port}'s slot")

    def script(self, text: str) -> Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]:
        """A Lua script: to be called with its keys, all of one hash tag, and its arguments."""
        script = AsyncScript(self._server(None).client, text)
        return lambda keys, args: self.call(keys[0], lambda redis: script(keys, args, redis))

    async def ping(self) -> None:
        """Ask the server, or one of the cluster's nodes. Raises `RedisError`, `OSError`."""
        await self._server(None).ask(lambda redis: redis.ping())

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        await asyncio.gather(*(server.client.aclose() for server in self._servers.values()))

    # --- nodes

    def _server(self, node: Node | None) -> _Server:
        """None: as the settings name it."""
        server = self._servers.get(node)
        if server is None:
            server = self._servers[node] = _Server(async_redis(self._settings, node=node))
        return server

    @staticmethod
    def _named(error: AskError, told_by: Node) -> Node:
        """Where an error leads to; without a host to another port of whoever said it."""
        return Node(error.host or told_by.host, error.port)

    async def _until_moved(self, call: Callable[[], Awaitable[T]]) -> T:
        """While some of its keys are there and others are not yet, or nobody serves them: again and again."""
        while True:
            try:
                return await call()
            except (TryAgainError, ClusterDownError):
                self._learn()
                await asyncio.sleep(_AGAIN_S)

    def _learn(self) -> None:
        """Beside what goes on, once at a time."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._ask_around(), name="read the cluster's slots")

    async def _ask_around(self) -> None:
        for node in (*self._slots.nodes(), self._seed):
            try:
                async with asyncio.timeout(self._timeout_ms / 1_000):
                    told = await self._server(node).ask(_cluster_slots)
                self._slots.learn(told, node)
            except (RedisError, OSError, TimeoutError):
                continue
            return


def _asking(command: Command[T]) -> Command[T]:
    """On one connection, else the node knows nothing of it."""

    async def ask(client: Redis) -> T:
        async with client.client() as connection:
            await connection.execute_command("ASKING")  # type: ignore[no-untyped-call]
            return await command(connection)

    return ask


async def _cluster_slots(client: Redis) -> Any:
    return await client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
