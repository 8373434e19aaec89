"""Dispatch a client's messages: the session decides what each means, and one part of the gateway carries that out.

    session → asking → sending (destination) → request_publisher ⇒ Kafka
    Kafka ⇒ log_readers → receiving → answering → inflight → outbox → socket

One event loop owns all state. Steps that wait (counting tokens, Kafka's acknowledgement, Redis) run in their own tasks;
all code that changes the in-flight table is synchronous.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.access.jwks import Jwks
from gateway.people.people import People
from gateway.request.inflight import InflightTable
from gateway.serving.asking import Asking
from gateway.serving.erasing import Erasing
from gateway.serving.resuming import Resuming
from gateway.session.connection import Connection, Connections, refuse
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
from shared.process.keyed_locks import KeyedLocks
from shared.wire.messages import ClientMessage


@dataclass(slots=True, kw_only=True)
class Gateway:
    """The gateway's entry points for a connection. `jwks` is None if no public keys are configured."""

    rate_limits: RateLimits
    jwks: Jwks | None
    inflight: InflightTable
    connections: Connections
    people: People
    resuming: Resuming
    asking: Asking
    erasing: Erasing
    _accepting: KeyedLocks = field(default_factory=KeyedLocks, init=False)

    def connect(self, connection: Connection) -> bool:
        """Add a connection and return True, or close it and return False if no more are allowed."""
        let_in = self.rate_limits.admit(connection)
        if let_in:
            self.connections.add(connection)
        return let_in

    def disconnect(self, connection: Connection) -> None:
        """Forget a connection whose socket has closed. Its requests continue, and the history keeps their answers."""
        self.rate_limits.leave(connection)
        if self.connections.remove(connection) and connection.num_inflight:
            self.inflight.detach(connection.session.connection_id)

    async def receive(
        self, connection: Connection, message: ClientMessage, received_unix_ms: float | None = None
    ) -> None:
        """Carry out one decoded message. Errors are sent to the client, and the connection stays open.

        Call it again only after it has returned: it waits for Redis and for a token's key.

        Args:
            connection: the client's connection
            message: the decoded message
            received_unix_ms: when the message was received; None means now
        """
        event_id = getattr(message, "event_id", None)
        try:
            now = now_unix_ms()
            effects = connection.session.receive(message, now)
            await self._carry_out(connection, effects, now if received_unix_ms is None else received_unix_ms)
        except ProtocolError as error:
            refuse(connection, error, event_id)
        connection.flush()

    async def tick(self, connection: Connection) -> None:
        """Run the connection's timers (hello, ping, pong). Call it once a second."""
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
            case Ask(request, caller):
                async with self._accepting.hold(caller.session):  # another tab's earlier question is accepted first
                    generation = await self.erasing.generation_of(caller.session, now)
                    self.asking.ask(connection, request, caller, generation, now)
            case CancelRequest():
                self.asking.cancel(connection, effect)
            case ForPeople(message):
                self.people.receive(connection, message)
            case EraseSession():
                await self.erasing.erase(connection)
            case Close(code, reason):
                connection.close(code, reason)

    async def _check_token(self, connection: Connection, check: CheckToken) -> None:
        """Fetch the token's key, then carry out the message's effects."""
        await self.prepare_key(check.token)
        now = now_unix_ms()
        await self._carry_out(connection, connection.session.check_token(check, now), now)

    async def prepare_key(self, token: str) -> None:
        """Fetch the public keys again if the token names an unknown key and the last fetch is long enough ago."""
        if self.jwks is not None:
            await self.jwks.prepare(token)
