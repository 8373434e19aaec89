"""Redis in memory (`fakeredis` with Lua), with faults: absent, slow, hanging, read-only, full, or executing commands
without an answer."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import fakeredis
from fakeredis._helpers import SimpleError
from fakeredis._socket._base import BaseFakeSocket
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.world.virtual.node import NODE, Node

if TYPE_CHECKING:
    from tests.world.virtual.loop import VirtualLoop

_GROWS: Final = frozenset({"set", "setex", "psetex", "rpush", "lpush", "hset", "hsetnx", "incr", "incrby", "append"})
_WRITES: Final = _GROWS | {"del", "unlink", "getdel", "expire", "pexpire", "persist", "ltrim", "lrem", "lpop", "hdel"}
_REFUSALS: Final = {
    "readonly": "READONLY You can't write against a read only replica.",
    "full": "OOM command not allowed when used memory > 'maxmemory'.",
}
_SLOW_S: Final = 0.12
_THREAD_S: Final = 0.02  # how long a thread waits for it


class _Lua:
    """A Lua runtime that compiles each script once and never collects garbage, because a world ends soon."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[Any, Any] = {"collectgarbage()": lambda: None}
        self.table_from, self.globals = runtime.table_from, runtime.globals

    def execute(self, script: Any) -> Any:
        if script not in self._compiled:
            self._compiled[script] = self._runtime.compile(script)
        return self._compiled[script]()


def runtime_of(socket: Any, server: Any, make: Any = ScriptingCommandsMixin._get_server_runtime) -> Any:
    """Return a server's Lua."""
    if not hasattr(server, "lua"):
        server.lua = _Lua(make(socket, server))
    return server.lua


class Redis:
    """One server with its fault, which lasts until `until_s`."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self.chance = random.Random(0)
        self.calls: Callable[[Node, str], None] = lambda *_: None
        self.server = fakeredis.FakeServer(version=(7,))
        self._store = fakeredis.FakeStrictRedis(server=self.server)  # read by the oracles
        self._mode, self._until_s = "", 0.0
        self.server.ails, self.server.wrote = lambda: self._ails, False  # type: ignore[attr-defined]
        self.server.ran = lambda *_: None  # type: ignore[attr-defined]
        BaseFakeSocket._run_command = _run_command  # type: ignore[method-assign]
        BaseFakeSocket._name_to_func = _name_to_func  # type: ignore[assignment]
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

    def watch(self, ran: Callable[[str, list[Any]], None]) -> None:
        """Call `ran` with each command that writes or deletes turns, and its arguments."""
        self.server.ran = ran  # type: ignore[attr-defined]

    def client(self, *_: Any, **__: Any) -> Any:
        """Replace `shared.redis.client.async_redis`."""
        return self._client(server=self.server)

    def blocking_client(self, *_: Any, **__: Any) -> Any:
        """Replace `shared.redis.client.blocking_redis`."""
        return self._blocking_client(server=self.server)

    def values(self, key: str) -> Any:
        """Return a list's values."""
        return self._store.lrange(key, 0, -1)

    def ail(self, mode: str, seconds: float) -> None:
        """Begin a fault that lasts for this long."""
        self._store = fakeredis.FakeStrictRedis(server=self.server)  # read by the oracles
        self._mode, self._until_s = mode, self._loop.now + seconds

    def evict(self) -> None:
        """Delete about half of the keys, except marks of erasures, which are in a Redis without eviction
        (docs/security.md)."""
        with self._well():
            for key in sorted(self._store.keys()):
                if self.chance.random() < 0.5 and ":erased" not in str(key):
                    self._store.delete(key)

    def garble(self) -> None:
        """Change the last byte of each conversation's KV."""
        with self._well():
            for key in sorted(self._store.keys("*:kv")):
                held: dict[Any, Any] = self._store.hgetall(key)
                for name, value in held.items():
                    self._store.hset(key, name, value[:-1] + bytes([value[-1] ^ 1]))

    @contextmanager
    def _well(self) -> Iterator[None]:
        mode, self._mode = self._mode, ""
        yield
        self._mode = mode

    def kv(self) -> Iterator[tuple[str, bytes, Any]]:
        """Yield the owner, name and value of each block of KV."""
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
            case "away":
                raise RedisConnectionError("Error 111 connecting to redis")

    async def _told(self) -> None:
        await asyncio.sleep(self._loop.lag_s() * 0.3)
        if self._ails == "unheard":
            raise RedisConnectionError("Connection reset by peer")

    def _batch(self, pipeline: Any, execute: Callable[..., list[Any]], options: dict[str, Any]) -> list[Any]:
        """Run the commands that a thread sends together; one refused command refuses all."""
        node, names = NODE.get(), [str(command[0][0]) for command in pipeline.command_stack]
        self._loop.trace("redis", node.name, names)
        node.threads.sleep(self._loop.lag_s() * 0.6)
        if self._ails in ("slow", "hang"):
            node.threads.sleep(_THREAD_S)
            raise RedisTimeoutError("Timeout reading from socket")
        if self._ails == "away":
            raise RedisConnectionError("Error 111 connecting to redis")
        replies = execute(**options)
        if self._ails == "unheard":
            raise RedisConnectionError("Connection reset by peer")
        return replies


_RUN: Final = BaseFakeSocket._run_command
_FIND: Final = BaseFakeSocket._name_to_func


def _refused(server: Any, name: str) -> str:
    """Return why a command is refused: a replica refuses writes, a full Redis refuses commands that need memory, unless
    their script has already written."""
    ails = getattr(server, "ails", str)()
    refused = name in (_WRITES if ails == "readonly" else _GROWS if ails == "full" and not server.wrote else ())
    return _REFUSALS[ails] if refused else ""


def _run_command(self: Any, func: Any, sig: Any, args: list[Any], from_script: bool) -> Any:
    """Run a command, or one of a script's."""
    server = self._server
    if not from_script:
        server.wrote = False
    if refusal := _refused(server, sig.name):
        return SimpleError(refusal)
    server.wrote = from_script and (server.wrote or sig.name in _WRITES)
    if sig.name in ("rpush", "del", "unlink"):
        server.ran(sig.name, args)
    return _RUN(self, func, sig, args, from_script)


def _name_to_func(self: Any, name: str) -> Any:
    """Find a command. A refused command of a transaction ends the whole transaction before any of it runs."""
    func, sig = _FIND(self, name)
    if self._queueing and (refusal := _refused(self._server, sig.name)):
        raise SimpleError(refusal)
    return func, sig
