"""Create redis-py clients without retries, for the event loop or for a thread: of a server, a Sentinel master, or a
cluster.

The URL contains the user, and the password unless it is in a file (`rediss://user@host:6380/0`, `redis.password_file`).
`rediss://` uses TLS, verified against the system's authorities or `redis.tls_ca`. The URL's query is passed to redis-py
(`?ssl_certfile=…`). Sentinels are queried without a login, and with TLS if the servers use it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

from redis import ConnectionPool, Redis, RedisCluster
from redis._parsers.encoders import Encoder
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
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry
from redis.sentinel import Sentinel

from shared.errors import SettingsError
from shared.redis.direct import DirectPool, DirectRedis, DirectSentinelPool, SentinelMaster
from shared.settings.redis import RedisAddress, Sentinels

_is_asking: Final[ContextVar[bool]] = ContextVar("is_asking", default=False)


class _HeldAsking(list[bytes]):
    """An ASKING that is held back until the same task packs the next command, possibly for another connection."""


class _AskedCommand(list[bytes]):
    """A command together with its preceding ASKING."""


class AskingConnection(Connection):
    """A connection to a cluster node that sends ASKING together with its command.

    redis-py takes a separate connection from its pool for each of the two, so that during a slot migration no command
    reaches the new node (redis 8.1, `_execute_command`).
    """

    _sent: object = None

    def pack_command(self, *command: Any) -> list[bytes]:
        if command == ("ASKING",):
            _is_asking.set(True)
            return _HeldAsking()
        packed = super().pack_command(*command)
        if not _is_asking.get():
            return packed
        _is_asking.set(False)
        return _AskedCommand([*super().pack_command("ASKING"), *packed])

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not isinstance(command, _HeldAsking):
            await super().send_packed_command(command, check_health)
        self._sent = command  # set last, since opening a connection also sends commands

    async def read_response(self, *args: Any, **options: Any) -> Any:
        sent, self._sent = self._sent, None
        if isinstance(sent, _HeldAsking):
            return b"OK"
        if isinstance(sent, _AskedCommand):
            await super().read_response()
        return await super().read_response(*args, **options)


class AskingTlsConnection(AskingConnection, SSLConnection):
    """An `AskingConnection` with TLS."""


T = TypeVar("T")
Command = Callable[[AsyncRedis], Awaitable[T]]

# Few, since opening a connection costs more than many calls: starting with none, the last of 500 concurrent calls is
# answered after 25 ms with 16 connections and after 100 ms with 64, which exceeds `redis.timeout_ms`.
MAX_CONNECTIONS: Final = 16
_CONNECT_TIMEOUT_S: Final = 5.0
_PIECE_BYTES: Final = 65_536
_PORT: Final = 6_379
_BUFFER_CUTOFF: Final = 6_000  # redis-py's default
_TLS_OPTION: Final = "ssl_"
_KEEPS: Final = "noeviction"


class RedisClient:
    """Redis for the event loop. The caller bounds the time of each call (`RedisCalls`).

    At most as many calls run as there are connections to one server, and others wait here: redis-py's own waiting pool
    would cost a third of a call.
    """

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        """Create the client.

        Raises:
            SettingsError: the URL is invalid.
        """
        self._client = async_redis(settings, timeout_ms=timeout_ms)
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._any_node = {"target_nodes": AsyncRedisCluster.DEFAULT_NODE} if settings.cluster else {}

    async def call(self, command: Command[T]) -> T:
        """Run a command.

        Raises:
            RedisError: Redis refused the command or did not answer.
            OSError: the connection failed.
        """
        async with self._free:
            try:
                return await command(self._client)
            except RedisClusterException as error:  # the only one of redis-py that is not a RedisError
                raise ClusterError(str(error)) from error
            except RedisError as error:
                if is_demoted(error) and (pool := getattr(self._client, "connection_pool", None)) is not None:
                    await pool.disconnect(inuse_connections=False)
                raise

    def script(self, text: str) -> Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]:
        """Return a Lua script as a function of its keys, which must share one hash tag, and its arguments."""
        script = AsyncScript(self._client, text)
        return lambda keys, args: self.call(lambda redis: script(keys, args, redis))

    async def ping(self) -> None:
        """Ping the server, or one of the cluster's nodes.

        Raises:
            RedisError, OSError: there was no answer.
        """
        await self.call(lambda redis: redis.ping(**self._any_node))

    async def memory_used(self) -> float:
        """Return the used share of `maxmemory`, in a cluster that of the fullest master.

        Returns:
            0 if there is no limit, Redis evicts (it is always full, and takes every write), or this user may not read
            it.

        Raises:
            RedisError, OSError: there was no answer.
        """
        masters = {"target_nodes": AsyncRedisCluster.PRIMARIES} if self._any_node else {}
        try:
            found = await self.call(lambda redis: redis.info("memory", **masters))
        except ResponseError:
            return 0.0
        each = found.values() if masters and "maxmemory" not in found else [found]
        filling = [info for info in each if info["maxmemory"] and info.get("maxmemory_policy", _KEEPS) == _KEEPS]
        return max((info["used_memory"] / info["maxmemory"] for info in filling), default=0.0)

    async def close(self) -> None:
        await self._client.aclose()


def async_redis(settings: RedisAddress, *, timeout_ms: float) -> AsyncRedis:
    """Return a client for the event loop; `aclose` closes its connections.

    Args:
        settings: the address and the credentials.
        timeout_ms: the caller's time limit for a call. Sentinels and cluster nodes that do not answer are skipped
            earlier.

    Raises:
        SettingsError: the URL is invalid.
    """
    limits: dict[str, Any] = {"retry": AsyncRetry(NoBackoff(), 0), "max_connections": MAX_CONNECTIONS}
    # The caller bounds each call; redis-py's two timers would cost a fifth of it. With maintenance notifications a
    # pooled connection is used without a check, even if it is closed or holds the answer of an earlier call.
    direct: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": _CONNECT_TIMEOUT_S}
    direct["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    try:
        if (sentinels := settings.sentinels) is not None:
            options = _server_options({**parse_async_url(sentinels.server_url)}, settings)
            asked = _sentinel_options(options, sentinels, timeout_ms)
            watch = AsyncSentinel(sentinels.hosts, sentinel_kwargs=asked | limits)  # type: ignore[no-untyped-call]
            options |= direct | limits
            return cast(AsyncRedis, watch.master_for(sentinels.master, SentinelMaster, DirectSentinelPool, **options))
        if settings.cluster:
            # A caller that cancels a call does not make redis-py notice a node that hangs, so redis-py's own timeout
            # must be shorter.
            cluster = AsyncRedisCluster.from_url(
                _url(settings), **_options(settings), **limits, **_socket_limits(timeout_ms / 2), **_TOPOLOGY
            )
            tls = settings.url.startswith("rediss")
            cluster.nodes_manager.connection_kwargs["connection_class"] = (
                AskingTlsConnection if tls else AskingConnection
            )
            return cluster  # type: ignore[return-value]
        return DirectRedis.from_pool(DirectPool.from_url(_url(settings), **direct, **_options(settings), **limits))
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def blocking_redis(settings: RedisAddress, *, timeout_ms: float) -> Redis:
    """Return a client of one server, or of the Sentinels' master, for one thread.

    It has one connection. A large value is sent in pieces, since Python applies a socket's timeout to the whole of a
    write. It uses RESP2, because over RESP3 a server may announce maintenance, and redis-py then waits longer.

    Args:
        settings: the address and the credentials.
        timeout_ms: the time limit of each read and write.

    Raises:
        SettingsError: the URL is invalid.
    """
    limits: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), **_BLOCKING, **_socket_limits(timeout_ms)}
    try:
        if (sentinels := settings.sentinels) is not None:
            options = _server_options(parse_url(sentinels.server_url), settings)  # type: ignore[no-untyped-call]
            asked = _sentinel_options(options, sentinels, timeout_ms)
            watch = Sentinel(sentinels.hosts, sentinel_kwargs=limits | asked)  # type: ignore[no-untyped-call]
            options |= limits | {"command_packer": _PiecePacker()}
            return cast(Redis, watch.master_for(sentinels.master, _Master, **options))  # type: ignore[no-untyped-call]
        return Redis.from_pool(_PiecePool.from_url(_url(settings), **_options(settings), **limits))
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def blocking_cluster(settings: RedisAddress, *, timeout_ms: float) -> RedisCluster:
    """Return a client like `blocking_redis`, with one connection to each node. It reads the cluster's slots
    immediately.

    Raises:
        RedisError: no node returned the slots.
    """
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
# After a MOVED answer redis-py updates that one slot. Reloading all slots would close connections with calls under way.
_TOPOLOGY: Final[dict[str, Any]] = {"require_full_coverage": False, "reinitialize_steps": 0}


def _socket_limits(timeout_ms: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_ms / 1_000, "socket_connect_timeout": timeout_ms / 1_000}


def _server_options(options: dict[str, Any], settings: RedisAddress) -> dict[str, Any]:
    """Return the options of the servers behind Sentinels: all of the URL except its address, and those of the
    settings."""
    tls = settings.url.startswith("rediss")
    login = () if settings.password_file is None else ("username", "password")
    kept = {name: value for name, value in options.items() if name not in {"host", "connection_class", *login}}
    return {**kept, **_options(settings), **({"ssl": True} if tls else {})}


def _sentinel_options(options: dict[str, Any], sentinels: Sentinels, timeout_ms: float) -> dict[str, Any]:
    """Return the Sentinels' options. Their timeout is short enough to try all of them and then the master."""
    tls = {name: value for name, value in options.items() if name == "ssl" or name.startswith(_TLS_OPTION)}
    return {**tls, **_socket_limits(timeout_ms / (len(sentinels.hosts) + 1))}


def cause_of(error: Exception) -> str:
    """Return the error in one line, with what to check after a failed login."""
    said = str(error).rstrip(".") or "no answer in time"
    match error:
        case AuthenticationError():
            return f"{said}: check the user in REPLYLINE_REDIS__URL, and REPLYLINE_REDIS__PASSWORD_FILE"
        case NoPermissionError():
            return f"{said}: see docs/security.md for the permissions that the user needs"
        case RedisError() if "CERTIFICATE_VERIFY_FAILED" in said:
            host = "the host in REPLYLINE_REDIS__URL is in the certificate"
            return f"{said}: check REPLYLINE_REDIS__TLS_CA, and that {host}"
    return said


def is_full(error: Exception) -> bool:
    """Return whether the server rejects writes because its memory is full. Redis 6 puts `-OOM` inside a script
    error's text."""
    return isinstance(error, OutOfMemoryError) or "-OOM" in str(error)


def is_demoted(error: Exception) -> bool:
    """Return whether the server became a replica, so that the client must reconnect to reach the new master.

    Redis 6 puts `-READONLY` inside a script error's text.
    """
    return isinstance(error, ReadOnlyError | MasterDownError) or "-READONLY" in str(error)


def _options(settings: RedisAddress) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.tls_ca is not None:
        options["ssl_ca_certs"] = str(settings.tls_ca)
    if settings.password_file is not None:
        options["credential_provider"] = _FileCredentials(settings)
    return options


def _url(settings: RedisAddress) -> str:
    """Return the URL without a login if a password file is set: redis-py takes both from one place."""
    if settings.password_file is None:
        return settings.url
    parts = urlsplit(settings.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def addresses_of(settings: RedisAddress) -> tuple[tuple[str, int], ...]:
    """Return the addresses in the URL: a server, a cluster node or the Sentinels. The host of a Unix socket is
    empty."""
    if (sentinels := settings.sentinels) is not None:
        return sentinels.hosts
    parts = urlsplit(settings.url)
    return ((parts.hostname or "", parts.port or _PORT),)


class _FileCredentials(CredentialProvider):
    """The login: the URL's user, and the password that the file contains at each connection."""

    def __init__(self, settings: RedisAddress) -> None:
        self._settings = settings
        self._user = urlsplit(settings.url).username

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = self._settings.read_password() or ""
        except ValueError as error:
            file = f"REPLYLINE_{self._settings.group.upper()}__PASSWORD_FILE={str(self._settings.password_file)!r}"
            raise AuthenticationError(f"{file}: {error}") from None
        return (unquote(self._user), password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


def _refusal(settings: RedisAddress, error: Exception) -> SettingsError:
    return SettingsError(f"REPLYLINE_{settings.group.upper()}__URL={settings.shown_url!r}: {error}")


class _Master(Redis):
    """A master's client that also closes the connections to the Sentinels."""

    def close(self) -> None:
        super().close()
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined]
            sentinel.close()


class _PiecePool(ConnectionPool):
    """redis-py's connection pool with connections that write large commands in pieces."""

    def __init__(self, **options: Any) -> None:
        super().__init__(command_packer=_PiecePacker(), **options)


class _PiecePacker:
    """redis-py's command packer that splits large pieces."""

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
