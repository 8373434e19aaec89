"""Dispatch a connection's messages: its session decides what each means, and one part of the gateway carries that out.

    session → asking → sending (destination) → request_publisher ⇒ Kafka
    Kafka ⇒ log_readers → answering → inflight → outbox → socket

One event loop owns all state. What waits (counting tokens, Kafka's acknowledgement, Redis) runs in its own task;
everything that changes the in-flight table is plain synchronous code.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.access.jwks import Jwks
from gateway.people.people import People
from gateway.request.inflight import InflightTable
from gateway.serving.asking import Asking
from gateway.serving.erasing import Erasing
from gateway.serving.resuming import Resuming
from gateway.session.connection import Connection, refuse
from gateway.session.connections import Connections
from gateway.session.effects import (
    Ask,
    CancelRequest,
    CheckToken,
    Close,
    Effect,
    EraseSession,
    ForPeople,
    OpenSession,
    Refuse,
    Send,
)
from gateway.session.rate_limits import RateLimits
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.wire.messages import ClientMessage


@dataclass(slots=True, kw_only=True)
class Gateway:
    """`jwks` is None where no public keys are read."""

    rate_limits: RateLimits
    jwks: Jwks | None
    inflight: InflightTable
    connections: Connections
    people: People
    resuming: Resuming
    asking: Asking
    erasing: Erasing

    def connect(self, connection: Connection) -> bool:
        """Return whether there is room for a connection; else it is closed."""
        let_in = self.rate_limits.admit(connection)
        if let_in:
            self.connections.add(connection)
        return let_in

    def disconnect(self, connection: Connection) -> None:
        """Forget a connection whose socket is gone; its requests continue, and the history keeps their answers."""
        self.rate_limits.leave(connection)
        if self.connections.remove(connection) and connection.num_inflight:
            self.inflight.detach(connection.session.connection_id)

    async def receive(
        self, connection: Connection, message: ClientMessage, received_unix_ms: float | None = None
    ) -> None:
        """Carry out a decoded message, the connection's next; it waits for Redis, and for a token's key. Errors go to
        the client; the connection stays. `received_unix_ms`: when it was received; None: now."""
        event_id = getattr(message, "event_id", None)
        try:
            now = now_unix_ms()
            effects = connection.session.receive(message, now)
            await self._carry_out(connection, effects, now if received_unix_ms is None else received_unix_ms)
        except ProtocolError as error:
            refuse(connection, error, event_id)
        connection.flush()

    async def tick(self, connection: Connection) -> None:
        """Once a second for each connection: hello, ping, pong."""
        now = now_unix_ms()
        await self._carry_out(connection, connection.session.tick(now), now)
        connection.flush()

    async def _carry_out(self, connection: Connection, effects: Iterable[Effect], now: float) -> None:
        for effect in effects:
            if await self.rate_limits.charge(connection, effect):
                await self._carry_out_charged(connection, effect, now)

    async def _carry_out_charged(self, connection: Connection, effect: Effect, now: float) -> None:
        match effect:
            case Send(message):
                connection.put(message)
            case CheckToken():
                await self._check_token(connection, effect)
            case OpenSession():
                await self.resuming.open_session(connection, effect, now)
            case Refuse(error):
                refuse(connection, error)
            case Ask(request):
                await self.asking.ask(connection, request, now)
            case CancelRequest():
                self.asking.cancel(connection, effect)
            case ForPeople(message):
                self.people.receive(connection, message)
            case EraseSession():
                await self.erasing.erase(connection)
            case Close(code, reason):
                connection.close(code, reason)

    async def _check_token(self, connection: Connection, check: CheckToken) -> None:
        """Wait for the token's key, then carry out what the message means."""
        await self.prepare_key(check.token)
        now = now_unix_ms()
        await self._carry_out(connection, connection.session.check_token(check, now), now)

    async def prepare_key(self, token: str) -> None:
        """Read the public keys again if the token names one that is not known, and it is time."""
        if self.jwks is not None:
            await self.jwks.prepare(token)
