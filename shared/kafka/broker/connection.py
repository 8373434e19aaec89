"""Start and stop aiokafka's clients and check their connections, through private names where no public ones exist."""

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
from shared.process.tasks import abandon
from shared.settings.kafka import KafkaSettings

T = TypeVar("T")


async def until_connected(what: str, connect: Callable[[], Awaitable[T]]) -> T:
    """Call `connect` until it succeeds, and return its result. Log one line at the first failure
    (`shared.telemetry.logs`)."""
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
    """Return whether the client has a connection to a broker.

    A consumer always has one while its broker is up, because it fetches or sends heartbeats. aiokafka has no public
    name for this.
    """
    if client is None:
        return False
    inner = client._client if isinstance(client, AIOKafkaConsumer) else client.client  # noqa: SLF001
    return any(connection.connected() for connection in inner._conns.values())  # noqa: SLF001


async def start_or_stop(
    client: "AIOKafkaProducer | AIOKafkaConsumer | AIOKafkaAdminClient", settings: KafkaSettings
) -> None:
    """Start a client; close its sockets if it fails to start.

    Raises:
        BrokerUnavailable: the broker does not accept this client; the message says what to check.
        KafkaError: any other failure.
    """
    try:
        await client.start()
    except BaseException as error:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
        # ValueError: the broker failed to prove that it knows the password (SCRAM)
        if isinstance(error, KafkaConnectionError | ValueError):
            raise BrokerUnavailable(await why_unreachable(settings) or str(error)) from error
        if isinstance(error, TopicAuthorizationFailedError | GroupAuthorizationFailedError):
            raise BrokerUnavailable(unauthorized(error, settings, "use")) from error
        raise


async def stop_consumer(consumer: AIOKafkaConsumer, *, limit_s: float) -> None:
    """Stop a consumer and close its connections, even if aiokafka's `stop` fails.

    `stop` raises `CancelledError` if a fetch was waiting for a retry, and then does not close its connections.
    """
    stopping = asyncio.create_task(consumer.stop())
    done, _ = await asyncio.wait([stopping], timeout=limit_s)
    abandon(stopping)
    if not done or stopping.cancelled() or stopping.exception() is not None:
        try:
            await consumer._client.close()  # noqa: SLF001
        except asyncio.CancelledError:  # of a connection that `stop` was closing; if this task is cancelled, raise it
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise


_WRITERS: Final = ("send", "_send_sasl_token")


def patch_closed_transports() -> None:
    """Patch aiokafka so that writing to a closed transport raises `KafkaConnectionError`. Call once for each process.

    uvloop raises `RuntimeError` there, but aiokafka handles only `OSError` as the end of a connection: after any other
    error its fetcher, sender and coordinator stop for good (aio-libs/aiokafka#1038; remove this when it is fixed). The
    case occurs when the broker resets a connection just before a request is sent.
    """
    for name in _WRITERS:
        setattr(AIOKafkaConnection, name, _or_broken(getattr(AIOKafkaConnection, name)))


def _or_broken(write: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(write)
    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return write(self, *args, **kwargs)
        except KafkaError:  # a subclass of RuntimeError
            raise
        except RuntimeError as error:
            if self._writer is None or not self._writer.transport.is_closing():
                raise
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"connection at {self.host}:{self.port} broken: {error}") from error

    return written
