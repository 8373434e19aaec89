"""Charge clients before their requests are carried out. A client that has used its quota for the minute, or has too
many open sockets, is sent an error with the time to wait."""

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
    """The quotas and the open sockets, checked once for each effect of a message."""

    quotas: Quotas
    sockets: OpenSockets = field(default_factory=OpenSockets)

    def admit(self, connection: Connection) -> bool:
        """Return whether another connection is allowed. If not, send its client an error and close it."""
        session = connection.session
        try:
            self.sockets.add(session.connection_id, session.caller.address)
        except ProtocolError as error:
            reject(connection, error)
            return False
        return True

    def leave(self, connection: Connection) -> None:
        """Release the slot of a closed connection."""
        self.sockets.remove(connection.session.connection_id)

    async def charge(self, connection: Connection, effect: Effect) -> bool:
        """Charge an effect before it is carried out.

        Of a question only the local quota is charged here; the shared quota is charged later, within the question's
        deadline. Token checks have no shared quota, because their subject is not known yet.

        Returns:
            Whether the effect may be carried out. If not, the client was sent an error.
        """
        kind, caller = _kind_of(effect), effect.caller if isinstance(effect, Ask) else connection.session.caller
        try:
            if isinstance(effect, OpenSession):
                self.sockets.assign(connection.session.connection_id, caller.session.tenant, caller.subject)
            if kind is None:
                return True
            self.quotas.charge_here(kind, caller, len(effect.request.input) if isinstance(effect, Ask) else 0)
            if kind not in {"ask", "token"}:
                await self.quotas.charge_shared(kind, caller)
        except ProtocolError as error:
            (reject if _opens(effect) else refuse)(connection, error, _event_id_of(effect))
            return False
        return True


def _kind_of(effect: Effect) -> Kind | None:
    """Return the kind of quota that an effect is charged to; None if it is free or already limited by the connection's
    message rate."""
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
    """Return whether the session cannot be opened without this effect."""
    return isinstance(effect, OpenSession) or (
        isinstance(effect, CheckToken) and isinstance(effect.message, SessionStart)
    )


def _event_id_of(effect: Effect) -> str | None:
    match effect:
        case Ask(request, _):
            return request.event_id
        case ForPeople(message):
            return message.event_id
    return None
