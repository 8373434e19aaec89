"""How a client of Redis is made, for the event loop or for a thread of its own: bounded, and without a retry.

User and password stand in the URL (`rediss://user:password@host:6380/0`); `rediss://` is TLS, checked against the
system's authorities or against `redis.tls_ca`. What the URL's query may say besides is redis-py's (`?ssl_certfile=…`).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from redis import Redis
from redis._parsers.encoders import Encoder
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import PythonRespSerializer
from redis.exceptions import RedisError
from redis.retry import Retry

from shared.errors import SettingsError
from shared.settings import RedisSettings

_PIECE_BYTES: Final = 65_536
_BUFFER_CUTOFF: Final = 6_000  # redis-py's own
_PASSWORD: Final = re.compile(r"(?<=:)[^:/]*(?=@)")


def async_redis(settings: RedisSettings) -> AsyncRedis:
    """A client for the event loop, bounded by `redis.timeout_ms`. Raises `SettingsError` where the URL is none."""
    try:
        return AsyncRedis.from_url(
            settings.url,
            **_options(settings, settings.timeout_ms),
            retry=AsyncRetry(NoBackoff(), 0),
            max_connections=64,
        )
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def blocking_redis(settings: RedisSettings, *, timeout_ms: float) -> Redis:
    """A client for one thread: one connection, each of whose reads and writes takes at most `timeout_ms`.

    A large value goes out in pieces, each with that limit: Python counts a socket's timeout over all of a write.
    RESP2, since servers may send over RESP3 that they are about to move and have redis-py wait longer meanwhile.
    Raises `SettingsError` where the URL is none.
    """
    try:
        return Redis.from_url(
            settings.url,
            **_options(settings, timeout_ms),
            retry=Retry(NoBackoff(), 0),
            max_connections=1,
            protocol=2,
            command_packer=_PiecePacker(),
        )
    except (ValueError, RedisError) as error:
        raise _refusal(settings, error) from None


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    return _PASSWORD.sub("***", url)


def _options(settings: RedisSettings, timeout_ms: float) -> dict[str, Any]:
    options: dict[str, Any] = {"socket_timeout": timeout_ms / 1_000, "socket_connect_timeout": timeout_ms / 1_000}
    if settings.tls_ca is not None:
        options["ssl_ca_certs"] = str(settings.tls_ca)
    return options


def _refusal(settings: RedisSettings, error: Exception) -> SettingsError:
    return SettingsError(f"REPLYLINE_REDIS__URL={without_password(settings.url)!r}: {error}")


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
