"""The actions that a client's message can cause (such as asking a question or cancelling an answer), as values. The
session state machine returns them, and the gateway carries them out. Pure."""

from dataclasses import dataclass
from enum import IntEnum

from gateway.access.charges import Caller
from shared.errors import ProtocolError
from shared.wire.messages import (
    Feedback,
    HandoffRequest,
    ResponseCreate,
    Resume,
    ServerMessage,
    SessionRefresh,
    SessionStart,
)


class CloseCode(IntEnum):
    """WebSocket close codes (after Centrifugo's): 40xx reconnect, 45xx do not."""

    SHUTDOWN = 4001
    INTERNAL = 4004
    TOKEN_EXPIRED = 4005
    SLOW_CONSUMER = 4008
    CONNECTION_LIMIT = 4009
    NO_PONG = 4012
    INVALID_TOKEN = 4500
    NO_HELLO = 4502
    FLOOD = 4503


@dataclass(frozen=True, slots=True)
class Send:
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class CheckToken:
    """Fetch the key that verifies the token, then call `Session.check_token`."""

    message: SessionStart | SessionRefresh
    token: str


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open the session: send `session.created` and what the client missed since `resume`. `returns` is True if the
    client named the session."""

    resume: Resume | None
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Send the client an error. A `Close` follows."""

    error: ProtocolError


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a question of `caller`, who pays for it."""

    request: ResponseCreate
    caller: Caller


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancel one request, named by its response or its event."""

    response_id: str | None
    event_id: str | None


@dataclass(frozen=True, slots=True)
class ForPeople:
    """Request a person for the conversation, or store the rating of an answer."""

    message: HandoffRequest | Feedback


@dataclass(frozen=True, slots=True)
class EraseSession:
    """Erase the conversation."""


@dataclass(frozen=True, slots=True)
class Close:
    code: CloseCode
    reason: str


Effect = Send | CheckToken | OpenSession | Refuse | Ask | CancelRequest | ForPeople | EraseSession | Close
