"""Charge clients for what they do before it is done. A client that has used up its minute, or holds too many sockets
open, gets the time to wait."""

from dataclasses import dataclass, field

from gateway.access.charges import Kind
from gateway.access.quotas import Quotas
from gateway.session.connection import Connection, refuse, reject
from gateway.session.effects import Ask, CheckToken, Effect, EraseSession, ForPeople, OpenSession
from shared.errors import ProtocolError
from shared.sockets.open_sockets import OpenSockets
from shared.wire.messages import HandoffRequest, SessionStart


@dataclass(slots=True, kw_only=True)
class RateLimits:
    """The quotas and the open sockets, asked once for each effect of a message."""

    quotas: Quotas
    sockets: OpenSockets = field(default_factory=OpenSockets)

    def admit(self, connection: Connection) -> bool:
        """Return whether there is room for a new connection; else its client gets an error, and it is closed."""
        session = connection.session
        try:
            self.sockets.add(session.connection_id, session.caller.address)
        except ProtocolError as error:
            reject(connection, error)
            return False
        return True

    def leave(self, connection: Connection) -> None:
        """Free the place of a connection that is gone."""
        self.sockets.remove(connection.session.connection_id)

    async def charge(self, connection: Connection, effect: Effect) -> bool:
        """Charge an effect before it is carried out; return whether it may be, else the client gets an error. A
        question's shared part is charged later, within its own deadline; a token has none, since its subject is not
        known yet."""
        kind, caller = _kind_of(effect), connection.session.caller
        try:
            if isinstance(effect, OpenSession):
                self.sockets.assign(connection.session.connection_id, caller.session.tenant, caller.subject)
            if kind is None:
                return True
            self.quotas.charge_here(kind, caller)
            if kind not in {"ask", "token"}:
                await self.quotas.charge_shared(kind, caller)
        except ProtocolError as error:
            (reject if _opens(effect) else refuse)(connection, error, _event_id_of(effect))
            return False
        return True


def _kind_of(effect: Effect) -> Kind | None:
    """Return what an effect is charged as; None for one that costs nothing, or no more than the connection's own rate
    allows."""
    match effect:
        case CheckToken():
            return "token"
        case Ask():
            return "ask"
        case OpenSession(resume, returns):
            return "resume" if returns or resume is not None else None
        case ForPeople(message):
            return "handoff" if isinstance(message, HandoffRequest) else "feedback"
        case EraseSession():
            return "delete"
    return None


def _opens(effect: Effect) -> bool:
    """Return whether an effect is a step of opening the session: without it the session is not opened."""
    return isinstance(effect, OpenSession) or (
        isinstance(effect, CheckToken) and isinstance(effect.message, SessionStart)
    )


def _event_id_of(effect: Effect) -> str | None:
    match effect:
        case Ask(request):
            return request.event_id
        case ForPeople(message):
            return message.event_id
    return None
