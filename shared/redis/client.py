"""How a client of Redis is made, for the event loop or for a thread of its own, without a retry.

The user stands in the URL, the password behind it or in a file (`rediss://user@host:6380/0`, `redis.password_file`).
`rediss://` is TLS, checked against the system's authorities or against `redis.tls_ca`. What the URL's query may say
besides is redis-py's (`?ssl_certfile=…`).
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis._parsers.encoders import Encoder
from redis.asyncio import ConnectionPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import PythonRespSerializer
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.retry import Retry

from shared.errors import SettingsError
from shared.process.host_port import host_port
from shared.redis.slots import Node
from shared.settings.redis import RedisAddress

# Few, since to open one costs more than many calls: where none is open yet the last of 500 calls at once is answered
# after 25 ms by 16 connections, and by 64 after 100 ms, too late for `redis.timeout_ms`.
MAX_CONNECTIONS: Final = 16
_PIECE_BYTES: Final = 65_536
_PORT: Final = 6_379
_BUFFER_CUTOFF: Final = 6_000  # redis-py's own


def async_redis(settings: RedisAddress, *, node: Node | None = None) -> AsyncRedis:
    """A client for the event loop. Who calls bounds how long it may take, and asks for no more than `MAX_CONNECTIONS`
    at once (`RedisNodes`): redis-py's own timeouts and its pool that waits cost a third of a call. `node`: another of
    the cluster than the URL names. `aclose` closes its connections. Raises `SettingsError` where the URL is none."""
    try:
        pool = ConnectionPool.from_url(
            _url(settings, node),
            **_options(settings),
            retry=AsyncRetry(NoBackoff(), 0),
            max_connections=MAX_CONNECTIONS,
        )
        return AsyncRedis.from_pool(pool)
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def blocking_redis(settings: RedisAddress, *, timeout_ms: float, node: Node | None = None) -> Redis:
    """A client for one thread: one connection, each of whose reads and writes takes at most `timeout_ms`.

    A large value goes out in pieces, each with that limit: Python counts a socket's timeout over all of a write.
    RESP2, since servers may send over RESP3 that they are about to move and have redis-py wait longer meanwhile.
    Raises `SettingsError` where the URL is none.
    """
    try:
        return Redis.from_url(
            _url(settings, node),
            **_options(settings),
            socket_timeout=timeout_ms / 1_000,
            socket_connect_timeout=timeout_ms / 1_000,
            retry=Retry(NoBackoff(), 0),
            max_connections=1,
            protocol=2,
            command_packer=_PiecePacker(),
        )
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


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


def _options(settings: RedisAddress) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.tls_ca is not None:
        options["ssl_ca_certs"] = str(settings.tls_ca)
    if settings.password_file is not None:
        options["credential_provider"] = _FileCredentials(settings)
    return options


def _url(settings: RedisAddress, node: Node | None) -> str:
    """redis-py takes the user from the URL or from who gives it the password, not from both."""
    if node is None and settings.password_file is None:
        return settings.url
    parts = urlsplit(settings.url)
    login, at, place = parts.netloc.rpartition("@")
    place = place if node is None else host_port(*node)
    return parts._replace(netloc=place if settings.password_file is not None else f"{login}{at}{place}").geturl()


def seed_of(settings: RedisAddress) -> Node:
    """The node that the URL names."""
    parts = urlsplit(settings.url)
    return Node(parts.hostname or "", parts.port or _PORT)


class _FileCredentials(CredentialProvider):
    """Who logs in: the URL's user, with the password that the file holds at that moment."""

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
