"""Start, watch and stop clients of aiokafka: what its public names leave out."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar

import stamina
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from structlog.contextvars import bound_contextvars

from shared.errors import BrokerUnavailable
from shared.kafka.broker.refusals import unauthorized, why_unreachable
from shared.settings.kafka import KafkaSettings

T = TypeVar("T")


async def until_connected(what: str, connect: Callable[[], Awaitable[T]]) -> T:
    """Try until it works; the log gets one line when it does not (`shared.telemetry.logs`)."""
    with bound_contextvars(what=what):
        async for attempt in stamina.retry_context(
            on=(KafkaError, BrokerUnavailable, OSError),
            attempts=None,
            timeout=None,
            wait_initial=0.1,
            wait_max=2.0,
            wait_jitter=0.2,
        ):
            with attempt:
                return await connect()
    raise AssertionError("retries without end came to an end")


def has_connection(client: "AIOKafkaConsumer | AIOKafkaProducer | None") -> bool:
    """Return whether a client has a connection to a broker: a consumer fetches or sends heartbeats all the time.
    aiokafka has no public name for it."""
    if client is None:
        return False
    inner = client._client if isinstance(client, AIOKafkaConsumer) else client.client  # noqa: SLF001
    return any(connection.connected() for connection in inner._conns.values())  # noqa: SLF001


async def start_or_stop(
    client: "AIOKafkaProducer | AIOKafkaConsumer | AIOKafkaAdminClient", settings: KafkaSettings
) -> None:
    """Start a client, or close the sockets that one that did not start still holds. Raises `BrokerUnavailable` with
    what to check where no broker lets it in, else `KafkaError`."""
    try:
        await client.start()
    except BaseException as error:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
        if isinstance(error, KafkaConnectionError | ValueError):  # ValueError: a broker that does not know our password
            raise BrokerUnavailable(await why_unreachable(settings) or str(error)) from error
        if isinstance(error, TopicAuthorizationFailedError | GroupAuthorizationFailedError):
            raise BrokerUnavailable(unauthorized(error, settings, "use")) from error
        raise


async def stop_consumer(consumer: AIOKafkaConsumer, *, limit_s: float) -> None:
    """aiokafka's `stop` raises the cancellation of a fetch that was waiting to be tried again, and then leaves its
    connections open."""
    stopping = asyncio.create_task(consumer.stop())
    done, _ = await asyncio.wait([stopping], timeout=limit_s)
    stopping.cancel()
    if not done or stopping.cancelled() or stopping.exception() is not None:
        await consumer._client.close()  # noqa: SLF001


_WRITERS: Final = ("send", "_send_sasl_token")


def take_for_broken() -> None:
    """Have a write to a closed transport raise `KafkaConnectionError`. Once a process.

    uvloop raises `RuntimeError` there, and aiokafka takes only an `OSError` for the end of a connection: by any other
    error its fetcher, sender and coordinator end for good (aio-libs/aiokafka#1038). It happens where the broker resets
    a connection in the moment before a request is sent."""
    for name in _WRITERS:
        setattr(AIOKafkaConnection, name, _or_broken(getattr(AIOKafkaConnection, name)))


def _or_broken(write: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(write)
    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return write(self, *args, **kwargs)
        except KafkaError:  # a RuntimeError too
            raise
        except RuntimeError as error:
            if self._writer is None or not self._writer.transport.is_closing():
                raise
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"connection at {self.host}:{self.port} broken: {error}") from error

    return written
