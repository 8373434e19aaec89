"""Redis in memory (`fakeredis`, Lua and all): away, slow, hanging, read-only, full, or unheard."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import fakeredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.world.node import NODE, Node

if TYPE_CHECKING:
    from tests.world.loop import VirtualLoop

MODES: Final = ("away", "slow", "hang", "readonly", "full", "unheard")
_READS: Final = frozenset(
    {"GET", "MGET", "HMGET", "LRANGE", "PING", "EXISTS", "TTL", "HGET", "HGETALL", "CLIENT", "HELLO", "TIME"}
)
_SLOW_S: Final = 0.12
_THREAD_S: Final = 0.02  # as long as a thread waits for it


class Redis:
    """One server, and what ails it until `until_s`."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self.chance = random.Random(0)
        self.calls: Callable[[Node, str], None] = lambda *_: None
        self.server = fakeredis.FakeServer(version=(7,))
        self._store = fakeredis.FakeStrictRedis(server=self.server)  # to be judged
        self._mode, self._until_s = "", 0.0
        redis = self

        class Client(fakeredis.FakeAsyncRedis):
            async def execute_command(self, *args: Any, **options: Any) -> Any:
                await redis._asked(str(args[0]).upper())
                value = await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
                await redis._told()
                return value

        class BlockingClient(fakeredis.FakeRedis):
            def pipeline(self, *args: Any, **options: Any) -> Any:
                pipeline: Any = super().pipeline(*args, **options)
                execute = pipeline.execute
                pipeline.execute = lambda **options: redis._batch(pipeline, execute, options)
                return pipeline

        self._client, self._blocking_client = Client, BlockingClient

    def client(self, *_: Any, **__: Any) -> Any:
        """Stand in place of `shared.redis.client.async_redis`."""
        return self._client(server=self.server)

    def blocking_client(self, *_: Any, **__: Any) -> Any:
        """Stand in place of `shared.redis.client.blocking_redis`."""
        return self._blocking_client(server=self.server)

    def values(self, key: str) -> Any:
        """Return a list's values."""
        return self._store.lrange(key, 0, -1)

    def ail(self, mode: str, seconds: float) -> None:
        """Have something ail it for a while."""
        self._store = fakeredis.FakeStrictRedis(server=self.server)  # to be judged
        self._mode, self._until_s = mode, self._loop.now + seconds

    def evict(self) -> None:
        """Lose about half of the keys, as under memory pressure without `noeviction`."""
        for key in sorted(self._store.keys()):
            if self.chance.random() < 0.5:
                self._store.delete(key)

    def garble(self) -> None:
        """Have the last byte of each conversation's KV be another."""
        for key in sorted(self._store.keys("*:kv")):
            held: dict[Any, Any] = self._store.hgetall(key)
            for name, value in held.items():
                self._store.hset(key, name, value[:-1] + bytes([value[-1] ^ 1]))

    def kv(self) -> Iterator[tuple[str, bytes, Any]]:
        """Yield whose each block of KV is, its name and its value."""
        keys: list[Any] = self._store.keys("replyline:*:kv*")
        for key in map(bytes.decode, keys):
            owner, _, name = key[len("replyline:{") :].partition("}:kv")
            if name:
                yield owner, bytes.fromhex(name[1:]), self._store.get(key)
            else:
                held: dict[Any, Any] = self._store.hgetall(key)
                yield from ((owner, name, value) for name, value in held.items())

    @property
    def _ails(self) -> str:
        return self._mode if self._loop.now < self._until_s else ""

    async def _asked(self, name: str) -> None:
        self._loop.trace("redis", NODE.get().name, name)
        self.calls(NODE.get(), name)
        await asyncio.sleep(self._loop.lag_s() * 0.3)
        match self._ails:
            case "slow":
                await asyncio.sleep(self.chance.random() * _SLOW_S)
            case "hang":
                await asyncio.sleep(self._until_s - self._loop.now)
            case _:
                self._refuse(name)

    async def _told(self) -> None:
        await asyncio.sleep(self._loop.lag_s() * 0.3)
        if self._ails == "unheard":
            raise RedisConnectionError("Connection reset by peer")

    def _batch(self, pipeline: Any, execute: Callable[..., list[Any]], options: dict[str, Any]) -> list[Any]:
        """Commands that a thread sends together; what refuses one refuses all."""
        node, names = NODE.get(), [str(command[0][0]) for command in pipeline.command_stack]
        self._loop.trace("redis", node.name, names)
        node.threads.sleep(self._loop.lag_s() * 0.6)
        if self._ails in ("slow", "hang"):
            node.threads.sleep(_THREAD_S)
            raise RedisTimeoutError("Timeout reading from socket")
        try:
            for name in names:
                self._refuse(name)
        except (ReadOnlyError, OutOfMemoryError) as error:
            return [error for _ in names]
        replies = execute(**options)
        if self._ails == "unheard":
            raise RedisConnectionError("Connection reset by peer")
        return replies

    def _refuse(self, name: str) -> None:
        match self._ails:
            case "away":
                raise RedisConnectionError("Error 111 connecting to redis")
            case "readonly" if name not in _READS:
                raise ReadOnlyError("You can't write against a read only replica.")
            case "full" if name not in _READS:
                raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
