"""Clients pay for what they do before it is done; who has used up a minute, or holds too many sockets open, is told
when to come again."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from gateway.access.charges import Kind
from gateway.access.jwks import Jwks
from gateway.access.open_sockets import OpenSockets
from gateway.access.quotas import Quotas
from gateway.session.connection import Connection, refuse
from gateway.session.protocol import Ask, Begin, Effect, ForCare, Forget
from shared.errors import ProtocolError
from shared.wire.messages import ClientMessage, HandoffRequest, SessionRefresh, SessionStart


@dataclass(slots=True, kw_only=True)
class RateLimits:
    """`jwks` is None where no public keys are read."""

    quotas: Quotas
    jwks: Jwks | None = None
    sockets: OpenSockets = field(default_factory=OpenSockets)

    def lets_in(self, connection: Connection) -> bool:
        """Return whether there is room for a connection that has just come; else it is told, and closed."""
        session = connection.session
        try:
            self.sockets.come(session.connection_id, session.caller.address)
        except ProtocolError as error:
            refuse(connection, error)
            _turn_away(connection, error)
            return False
        return True

    async def admits(self, connection: Connection, message: ClientMessage) -> bool:
        """Return whether a message may be received. Of one with a token the keys to check it with are here then."""
        if not isinstance(message, SessionStart | SessionRefresh) or message.token is None:
            return True
        session = connection.session
        try:
            self.quotas.take_here("token", session.caller)
        except ProtocolError as error:
            refuse(connection, error)
            if isinstance(message, SessionStart):
                _turn_away(connection, error)
            return False
        if self.jwks is not None:
            session.hello_came()
            await self.jwks.prepare(message.token)
        return True

    async def passing(self, connection: Connection, effects: Iterable[Effect]) -> AsyncIterator[Effect]:
        """Give the effects of a message that may be carried out; of all else the client is told."""
        for effect in effects:
            if await self._passes(connection, effect):
                yield effect

    async def _passes(self, connection: Connection, effect: Effect) -> bool:
        """Return whether an effect may pass. Of a question the shared part is taken later, within its own deadline."""
        kind, caller = _kind_of(effect), connection.session.caller
        try:
            if isinstance(effect, Begin):
                self.sockets.begin(connection.session.connection_id, caller.session.tenant, caller.subject)
            if kind is None:
                return True
            self.quotas.take_here(kind, caller)
            if kind != "ask":
                await self.quotas.take_shared(kind, caller)
        except ProtocolError as error:
            refuse(connection, error, _event_id_of(effect))
            if isinstance(effect, Begin):
                _turn_away(connection, error)
            return False
        return True


def _kind_of(effect: Effect) -> Kind | None:
    """Return what a message is charged as; None for what costs nothing, or no more than the connection's own rate
    allows."""
    match effect:
        case Ask():
            return "ask"
        case Begin(resume, returns):
            return "resume" if returns or resume is not None else None
        case ForCare(message):
            return "handoff" if isinstance(message, HandoffRequest) else "feedback"
        case Forget():
            return "delete"
    return None


def _event_id_of(effect: Effect) -> str | None:
    match effect:
        case Ask(request):
            return request.event_id
        case ForCare(message):
            return message.event_id
    return None


def _turn_away(connection: Connection, error: ProtocolError) -> None:
    close = connection.session.turn_away(error)
    connection.close(close.code, close.reason)
