"""Redis for the event loop: one server, or the nodes of a cluster, whose redirections are followed.

redis-py's own cluster client does not serve here: it sends ASKING on one connection of a pool and the command on
another, so that nothing reaches a slot that is being moved; and it raises where a burst finds no free connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.redis_client import async_redis, seed_of
from shared.redis_settings import RedisAddress
from shared.redis_slots import Node, SlotMap

T = TypeVar("T")
Command = Callable[[Redis], Awaitable[T]]

_REDIRECTIONS: Final = 8
_AGAIN_S: Final = 0.01


class RedisNodes:
    """Each call names the key that it is about. Who calls bounds how long it may take (`RedisCalls`).

    A call whose keys are being moved waits until they are; one whose node is gone fails, and the next one knows the
    node that serves in its place.
    """

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._seed = seed_of(settings)
        self._slots = SlotMap(self._seed)
        self._clients: dict[Node | None, Redis] = {}
        self._learning: asyncio.Task[None] | None = None
        self._client(None)  # raises `SettingsError` where the URL is none

    async def call(self, key: str, command: Command[T]) -> T:
        """Raises `RedisError`, `OSError`."""
        if not self._settings.cluster:
            return await command(self._client(None))
        for _ in range(_REDIRECTIONS):
            node = self._slots.of(key)
            try:
                return await self._until_moved(lambda node=node: command(self._client(node)))  # type: ignore[misc]
            except MovedError as moved:
                self._slots.moved(moved.slot_id, self._named(moved, node))
                self._learn()
            except AskError as ask:
                client = self._client(self._named(ask, node))
                return await self._until_moved(lambda client=client: _asking(client, command))  # type: ignore[misc]
            except (RedisConnectionError, RedisTimeoutError, OSError, asyncio.CancelledError):  # gone, or it hangs
                self._learn()
                raise
        raise RedisError(f"{_REDIRECTIONS} redirections, and no node serves {node.host}:{node.port}'s slot")

    def script(self, text: str) -> Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]:
        """A Lua script: to be called with its keys, all of one hash tag, and its arguments."""
        script = AsyncScript(self._client(None), text)
        return lambda keys, args: self.call(keys[0], lambda redis: script(keys, args, redis))

    async def ping(self) -> None:
        """Ask the server, or one of the cluster's nodes. Raises `RedisError`, `OSError`."""
        await self._client(None).ping()

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        await asyncio.gather(*(client.aclose() for client in self._clients.values()))

    # --- nodes

    def _client(self, node: Node | None) -> Redis:
        """None: as the settings name it."""
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = async_redis(self._settings, timeout_ms=self._timeout_ms, node=node)
        return client

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
                told = await self._client(node).execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
                self._slots.learn(told, node)
            except (RedisError, OSError):
                continue
            return


async def _asking(client: Redis, command: Command[T]) -> T:
    """On one connection, else the node knows nothing of it."""
    async with client.client() as connection:
        await connection.execute_command("ASKING")  # type: ignore[no-untyped-call]
        return await command(connection)
