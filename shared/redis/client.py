"""Make redis-py's client of Redis, for the event loop or for a separate thread, without a retry: of one server, of the
master that sentinels name, or of a cluster.

The URL has the user, and the password unless a file has it (`rediss://user@host:6380/0`, `redis.password_file`).
`rediss://` is TLS, checked against the system's authorities or `redis.tls_ca`. The URL's query is redis-py's
(`?ssl_certfile=…`). Sentinels are asked without a login, with TLS if the servers have it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from redis import ConnectionPool, Redis, RedisCluster
from redis._parsers.encoders import Encoder
from redis.asyncio import ConnectionPool as AsyncConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.connection import parse_url as parse_async_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.connection import PythonRespSerializer, parse_url
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AuthenticationError,
    ClusterError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from shared.errors import SettingsError
from shared.settings.redis import RedisAddress, Sentinels

_is_asking: Final[ContextVar[bool]] = ContextVar("is_asking", default=False)


class _Asking(list[bytes]):
    """ASKING, which waits for its command: the same task packs that next, maybe for another connection."""


class _Asked(list[bytes]):
    """A command behind its ASKING."""


class AskingConnection(Connection):
    """A plain connection to a cluster's node. It sends ASKING together with the command that it is for: redis-py takes
    a connection of its pool for each of the two, so that nothing reaches what has left a slot that is being moved
    (redis 8.1, `_execute_command`)."""

    _sent: object = None

    def pack_command(self, *command: Any) -> list[bytes]:
        if command == ("ASKING",):
            _is_asking.set(True)
            return _Asking()
        packed = super().pack_command(*command)
        if not _is_asking.get():
            return packed
        _is_asking.set(False)
        return _Asked([*super().pack_command("ASKING"), *packed])

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not isinstance(command, _Asking):
            await super().send_packed_command(command, check_health)
        self._sent = command  # what a new connection has sent before its first command is behind it

    async def read_response(self, *args: Any, **options: Any) -> Any:
        sent, self._sent = self._sent, None
        if isinstance(sent, _Asking):
            return b"OK"
        if isinstance(sent, _Asked):
            await super().read_response()
        return await super().read_response(*args, **options)


class AskingTlsConnection(AskingConnection, SSLConnection):
    """One with TLS."""


T = TypeVar("T")
Command = Callable[[AsyncRedis], Awaitable[T]]

# Few, since to open one costs more than many calls: where none is open yet the last of 500 calls at once is answered
# after 25 ms by 16 connections, and by 64 after 100 ms, too late for `redis.timeout_ms`.
MAX_CONNECTIONS: Final = 16
_PIECE_BYTES: Final = 65_536
_PORT: Final = 6_379
_BUFFER_CUTOFF: Final = 6_000  # redis-py's own
_TLS_OPTION: Final = "ssl_"


class RedisClient:
    """Redis for the event loop. The caller bounds the time of a call (`RedisCalls`). At most as many calls run as one
    server has connections, others wait: redis-py's own waiting pool costs a third of a call."""

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        """Make the client. Raises `SettingsError` where the URL is none."""
        self._client = async_redis(settings, timeout_ms=timeout_ms)
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._any_node = {"target_nodes": AsyncRedisCluster.DEFAULT_NODE} if settings.cluster else {}

    async def call(self, command: Command[T]) -> T:
        """Call Redis. Raises `RedisError`, `OSError`."""
        async with self._free:
            try:
                return await command(self._client)
            except RedisClusterException as error:  # redis-py's only one beside its tree
                raise ClusterError(str(error)) from error
            except RedisError as error:
                if is_demoted(error) and (pool := getattr(self._client, "connection_pool", None)) is not None:
                    await pool.disconnect(inuse_connections=False)
                raise

    def script(self, text: str) -> Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]:
        """Return a Lua script: to be called with its keys, all of one hash tag, and its arguments."""
        script = AsyncScript(self._client, text)
        return lambda keys, args: self.call(lambda redis: script(keys, args, redis))

    async def ping(self) -> None:
        """Ask the server, or one of the cluster's nodes. Raises `RedisError`, `OSError`."""
        await self.call(lambda redis: redis.ping(**self._any_node))

    async def memory_used(self) -> float:
        """Return the part of its memory that is taken, of a cluster's fullest master; 0 where it has no limit, or does
        not tell this user. Raises `RedisError`, `OSError`."""
        masters = {"target_nodes": AsyncRedisCluster.PRIMARIES} if self._any_node else {}
        try:
            found = await self.call(lambda redis: redis.info("memory", **masters))
        except ResponseError:
            return 0.0
        each = found.values() if masters and "maxmemory" not in found else [found]
        return max((info["used_memory"] / info["maxmemory"] for info in each if info["maxmemory"]), default=0.0)

    async def close(self) -> None:
        await self._client.aclose()


def async_redis(settings: RedisAddress, *, timeout_ms: float) -> AsyncRedis:
    """Return a client for the event loop; `aclose` closes its connections. Sentinels and a cluster's nodes that do not
    answer are given up within `timeout_ms`, the caller's limit for a call. Raises `SettingsError` for a bad URL."""
    limits: dict[str, Any] = {"retry": AsyncRetry(NoBackoff(), 0), "max_connections": MAX_CONNECTIONS}
    try:
        if (sentinels := settings.sentinels) is not None:
            options = _server_options({**parse_async_url(sentinels.server_url)}, settings)
            asked = _sentinel_options(options, sentinels, timeout_ms)
            watch = AsyncSentinel(sentinels.hosts, sentinel_kwargs=asked | limits)  # type: ignore[no-untyped-call]
            master: AsyncRedis = watch.master_for(sentinels.master, _AsyncMaster, **options, **limits)
            return master
        if settings.cluster:
            # Who gives up a call by itself tells redis-py nothing of a node that hangs: its own limit has to be first.
            cluster = AsyncRedisCluster.from_url(
                _url(settings), **_options(settings), **limits, **_socket_limits(timeout_ms / 2), **_TOPOLOGY
            )
            tls = settings.url.startswith("rediss")
            cluster.nodes_manager.connection_kwargs["connection_class"] = (
                AskingTlsConnection if tls else AskingConnection
            )
            return cluster  # type: ignore[return-value]
        return AsyncRedis.from_pool(AsyncConnectionPool.from_url(_url(settings), **_options(settings), **limits))
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def blocking_redis(settings: RedisAddress, *, timeout_ms: float) -> Redis:
    """Return a client of one server, or of the sentinels' master, for one thread: one connection, each of whose reads
    and writes takes at most `timeout_ms`. Raises `SettingsError` for a bad URL.

    A large value is sent in pieces, each with that limit: Python counts a socket's timeout over all of a write. RESP2:
    over RESP3 a server may announce that it moves, and redis-py then waits longer."""
    limits: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), **_BLOCKING, **_socket_limits(timeout_ms)}
    try:
        if (sentinels := settings.sentinels) is not None:
            options = _server_options(parse_url(sentinels.server_url), settings)  # type: ignore[no-untyped-call]
            asked = _sentinel_options(options, sentinels, timeout_ms)
            watch = Sentinel(sentinels.hosts, sentinel_kwargs=limits | asked)  # type: ignore[no-untyped-call]
            master: Redis = watch.master_for(  # type: ignore[no-untyped-call]
                sentinels.master, _Master, **options, **limits, command_packer=_PiecePacker()
            )
            return master
        return Redis.from_pool(_PiecePool.from_url(_url(settings), **_options(settings), **limits))
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def blocking_cluster(settings: RedisAddress, *, timeout_ms: float) -> RedisCluster:
    """Return a client as `blocking_redis`, with a connection to each node. It asks for the cluster's slots at once:
    raises `RedisError` where no node tells them."""
    try:
        return RedisCluster.from_url(
            _url(settings),
            **_options(settings),
            **_BLOCKING,
            **_socket_limits(timeout_ms),
            **_TOPOLOGY,
            retry=Retry(NoBackoff(), 0),
            connection_pool_class=_PiecePool,
        )
    except RedisClusterException as error:
        raise ClusterError(str(error)) from error


_BLOCKING: Final[dict[str, Any]] = {"max_connections": 1, "protocol": 2}
# A slot that moved is looked for again by itself: to read them all anew redis-py hangs up, whatever is under way.
_TOPOLOGY: Final[dict[str, Any]] = {"require_full_coverage": False, "reinitialize_steps": 0}


def _socket_limits(timeout_ms: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_ms / 1_000, "socket_connect_timeout": timeout_ms / 1_000}


def _server_options(options: dict[str, Any], settings: RedisAddress) -> dict[str, Any]:
    """Return the options of the servers that sentinels name: of their URL all but the place, and what the settings say
    besides."""
    tls = settings.url.startswith("rediss")
    login = () if settings.password_file is None else ("username", "password")
    kept = {name: value for name, value in options.items() if name not in {"host", "connection_class", *login}}
    return {**kept, **_options(settings), **({"ssl": True} if tls else {})}


def _sentinel_options(options: dict[str, Any], sentinels: Sentinels, timeout_ms: float) -> dict[str, Any]:
    """One that does not answer leaves the others, and the master, their time."""
    tls = {name: value for name, value in options.items() if name == "ssl" or name.startswith(_TLS_OPTION)}
    return {**tls, **_socket_limits(timeout_ms / (len(sentinels.hosts) + 1))}


def cause_of(error: Exception) -> str:
    """In one line, with what to check where Redis has let nobody in."""
    said = str(error).rstrip(".") or "no answer in time"
    match error:
        case AuthenticationError():
            return f"{said}: check the user in redis.url, and redis.password_file"
        case NoPermissionError():
            return f"{said}: docs/security.md has the user's rights"
        case RedisError() if "CERTIFICATE_VERIFY_FAILED" in said:
            return f"{said}: check redis.tls_ca, and that redis.url has the name that the certificate is for"
    return said


def is_full(error: Exception) -> bool:
    """Return whether the server takes no writes for want of memory. Redis 6 says it of a script in the middle of a
    line."""
    return isinstance(error, OutOfMemoryError) or "-OOM" in str(error)


def is_demoted(error: Exception) -> bool:
    """Return whether the server has become a replica: behind an address that stays another is the master, for whoever
    connects anew. Redis 6 says it of a script in the middle of a line."""
    return isinstance(error, ReadOnlyError | MasterDownError) or "-READONLY" in str(error)


def _options(settings: RedisAddress) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.tls_ca is not None:
        options["ssl_ca_certs"] = str(settings.tls_ca)
    if settings.password_file is not None:
        options["credential_provider"] = _FileCredentials(settings)
    return options


def _url(settings: RedisAddress) -> str:
    """redis-py takes the user from the URL or from who gives it the password, not from both."""
    if settings.password_file is None:
        return settings.url
    parts = urlsplit(settings.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def addresses_of(settings: RedisAddress) -> tuple[tuple[str, int], ...]:
    """Return what the URL names: a server, a node of a cluster or its sentinels; of a unix socket the host is empty."""
    if (sentinels := settings.sentinels) is not None:
        return sentinels.hosts
    parts = urlsplit(settings.url)
    return ((parts.hostname or "", parts.port or _PORT),)


class _FileCredentials(CredentialProvider):
    """The login: the URL's user, with the password that the file holds at that moment."""

    def __init__(self, settings: RedisAddress) -> None:
        self._settings = settings
        self._user = urlsplit(settings.url).username

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = self._settings.read_password() or ""
        except ValueError as error:
            file = f"{self._settings.group}.password_file={str(self._settings.password_file)!r}"
            raise AuthenticationError(f"{file}: {error}") from None
        return (unquote(self._user), password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


def _refusal(settings: RedisAddress, error: Exception) -> SettingsError:
    return SettingsError(f"REPLYLINE_{settings.group.upper()}__URL={settings.shown_url!r}: {error}")


class _AsyncMaster(AsyncRedis):
    """One that hangs up at the sentinels too."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined]
            await sentinel.aclose()


class _Master(Redis):
    """The master that sentinels name, as `_AsyncMaster`."""

    def close(self) -> None:
        super().close()
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined]
            sentinel.close()


class _PiecePool(ConnectionPool):
    """redis-py's pool, whose connections write large commands in pieces."""

    def __init__(self, **options: Any) -> None:
        super().__init__(command_packer=_PiecePacker(), **options)


class _PiecePacker:
    """redis-py's command packer, its large pieces cut."""

    def __init__(self) -> None:
        encoder = Encoder("utf-8", "strict", decode_responses=False)  # type: ignore[no-untyped-call]
        self._packer = PythonRespSerializer(_BUFFER_CUTOFF, encoder.encode)

    def pack(self, *args: Any) -> list[bytes | memoryview]:
        chunks = self._packer.pack(*args)  # type: ignore[no-untyped-call]
        return [piece for chunk in chunks for piece in _cut(chunk)]


def _cut(chunk: bytes) -> Iterator[bytes | memoryview]:
    if len(chunk) <= _PIECE_BYTES:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(chunk), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]
