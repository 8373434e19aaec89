"""Run one gRPC call from its start to its end. An exception becomes the call's status. A session or an answer that the
call has opened in the gateway is closed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from grpc import aio
from grpc.aio import ServicerContext

from gateway.doors.grpc.messages import server_bytes
from gateway.doors.grpc.metadata import asker_of, status_of, trailers_of
from gateway.exchange.question import Asker
from gateway.exchange.refusals import RefusalError
from shared.errors import ProtocolError
from shared.settings.gateway import GatewaySettings
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.wire.failed_ends import OWN_FAULT, detail_of
from shared.wire.messages import ServerMessage
from shared.wire.outcome import ErrorDetail


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call. `lost` is called once its client has disconnected."""

    context: ServicerContext
    settings: GatewaySettings
    promised_ms: int
    gone: bool = False
    lost: Callable[[], None] = field(default=lambda: None)

    @property
    def asker(self) -> Asker:
        context = self.context
        return asker_of(
            context.peer(),
            context.invocation_metadata(),
            context.time_remaining(),
            trusted=self.settings.trusted_proxies,
            promised_ms=self.promised_ms,
        )

    async def write(self, message: ServerMessage) -> None:
        """Write a message. Raises `ProtocolError` if the client does not read."""
        if self.gone:
            return
        try:
            async with asyncio.timeout(self.settings.slow_consumer_s):
                await self.context.write(server_bytes(message))
        except TimeoutError:
            raise ProtocolError("slow_consumer", "the client reads too slowly", kind="rate_limit_error") from None
        except aio.BaseError:
            self.leave()

    async def read(self) -> bytes | None:
        """Return the client's next message; None after its last."""
        try:
            data = await self.context.read()
        except aio.BaseError:
            self.leave()
            return None
        return data if isinstance(data, bytes) else None

    async def request(self) -> bytes:
        """Return a call's only message. Raises `ProtocolError` if it does not arrive in time."""
        try:
            async with asyncio.timeout(self.settings.hello_timeout_s):
                data = await self.read()
        except TimeoutError:
            data = None
        if data is None:
            raise ProtocolError("no_request", f"no message within {self.settings.hello_timeout_s:g} s")
        return data

    def leave(self) -> None:
        """Record that the client has disconnected."""
        self.gone = True
        self.lost()

    async def carry(self, work: Awaitable[None]) -> None:
        """Do the work and end the call. The work continues until it notices that the client has disconnected."""
        task = asyncio.ensure_future(self._end(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self.leave()
            await asyncio.wait([task])
            raise

    async def _end(self, work: Awaitable[None]) -> None:
        try:
            await self._answer(work)
        except aio.AbortError:  # the call has its status
            raise
        except aio.BaseError:  # the client disconnected during a write
            self.leave()

    async def _answer(self, work: Awaitable[None]) -> None:
        """Do the work, and end the call with an error if it fails. Raises `aio.BaseError`."""
        try:
            await work
        except ProtocolError as error:
            if not isinstance(error, RefusalError):
                metrics.refused.labels(error.code).inc()
            await self._abort(detail_of(error))
        except aio.BaseError:
            raise
        except Exception as error:  # noqa: BLE001 - counted and logged; this client is sent a retriable error
            caught("connection", error, door="grpc")
            await self._abort(OWN_FAULT)

    async def _abort(self, error: ErrorDetail) -> None:
        if not self.gone:
            await self.context.abort(status_of(error), error.message, trailers_of(error))
