"""One connection's side of the protocol, as a pure state machine: messages and time in, effects out.

NEW --session.start--> OPEN --close--> CLOSED
 └--no hello, wrong first message--> CLOSED
"""

from dataclasses import dataclass
from enum import Enum, auto

from shared.errors import ProtocolError
from shared.messages import (
    ClientMessage,
    ErrorDetail,
    ErrorEvent,
    Limits,
    Ping,
    Pong,
    ResponseCancel,
    ResponseCreate,
    ServerMessage,
    SessionCreated,
    SessionDelete,
    SessionRefresh,
    SessionStart,
)


class CloseCode:
    """WebSocket close codes (after Centrifugo's): 40xx reconnect, 45xx do not."""

    SHUTDOWN = 4001
    INTERNAL = 4004
    SLOW_CONSUMER = 4008
    NO_PONG = 4012
    BAD_REQUEST = 4501
    NO_HELLO = 4502
    CONNECTION_LIMIT = 4504


class State(Enum):
    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Send:
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class Ask:
    request: ResponseCreate


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """Cancel one request, named by its response or its event."""

    response_id: str | None
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Forget:
    """Erase what is kept of this session."""


@dataclass(frozen=True, slots=True)
class Close:
    code: int
    reason: str


Effect = Send | Ask | CancelAsked | Forget | Close


@dataclass(frozen=True, slots=True)
class SessionLimits:
    hello_timeout_ms: float
    heartbeat_ms: float
    messages_per_minute: int
    announced: Limits


class Session:
    """`connection_id` names the socket, `session_id` the conversation: the client's, or else `fresh_session_id`."""

    __slots__ = (
        "_allowance",
        "_allowance_unix_ms",
        "_last_ping_unix_ms",
        "_limits",
        "_opened_unix_ms",
        "_unanswered_pings",
        "connection_id",
        "session_id",
        "state",
    )

    def __init__(self, *, connection_id: str, fresh_session_id: str, limits: SessionLimits, now_unix_ms: float) -> None:
        self.connection_id = connection_id
        self.session_id = fresh_session_id
        self.state = State.NEW
        self._limits = limits
        self._opened_unix_ms = now_unix_ms
        self._last_ping_unix_ms = now_unix_ms
        self._unanswered_pings = 0
        self._allowance = float(limits.messages_per_minute)
        self._allowance_unix_ms = now_unix_ms

    def receive(self, message: ClientMessage, now_unix_ms: float) -> list[Effect]:
        """What a decoded message means. Raises `ProtocolError` where the client is to be told, and stays open."""
        if self.state is State.CLOSED:  # what was on its way when the close was decided
            return []
        if isinstance(message, Pong):
            self._unanswered_pings = 0
            return []
        self.spend(now_unix_ms)
        if self.state is State.NEW:
            return self._start(message)
        match message:
            case ResponseCreate():
                return [Ask(message)]
            case ResponseCancel():
                if message.response_id is None and message.target_event_id is None:
                    raise ProtocolError("invalid_field", "name a response_id or a target_event_id", param="response_id")
                return [CancelAsked(message.response_id, message.target_event_id)]
            case SessionDelete():
                return [Forget()]
            case SessionStart():
                raise ProtocolError("already_started", "the session is started; open another connection for another")
            case SessionRefresh():
                raise _no_tokens("token")

    def _start(self, message: ClientMessage) -> list[Effect]:
        if not isinstance(message, SessionStart):
            self.state = State.CLOSED
            return [Close(CloseCode.NO_HELLO, "the first message must be session.start")]
        if message.token is not None:
            raise _no_tokens("token")
        self.session_id = message.session_id or self.session_id
        self.state = State.OPEN
        # Replies are not kept for resuming yet: a client that asks to resume is told that it was not, and re-asks
        # with the same event_id, which reattaches to its answer.
        created = SessionCreated(
            session_id=self.session_id,
            connection_id=self.connection_id,
            recovered=False,
            replayed=0,
            limits=self._limits.announced,
            heartbeat_s=self._limits.heartbeat_ms / 1_000,
        )
        return [Send(created)]

    def spend(self, now_unix_ms: float) -> None:
        """Count a message against the rate (token bucket, a minute's worth deep). Raises `ProtocolError`."""
        per_ms = self._limits.messages_per_minute / 60_000
        elapsed_ms = max(0.0, now_unix_ms - self._allowance_unix_ms)
        self._allowance = min(self._limits.messages_per_minute, self._allowance + elapsed_ms * per_ms)
        self._allowance_unix_ms = max(now_unix_ms, self._allowance_unix_ms)  # a clock set back refills nothing
        if self._allowance < 1:
            wait_ms = int((1 - self._allowance) / per_ms) + 1
            raise ProtocolError(
                "rate_limited",
                f"more than {self._limits.messages_per_minute} messages a minute; wait {wait_ms} ms",
                kind="rate_limit_error",
                retriable=True,
                retry_after_ms=wait_ms,
            )
        self._allowance -= 1

    def tick(self, now_unix_ms: float) -> list[Effect]:
        """Time passes: the hello that does not come, the ping that is due, the pongs that stay out."""
        if self.state is State.NEW and now_unix_ms - self._opened_unix_ms >= self._limits.hello_timeout_ms:
            self.state = State.CLOSED
            return [Close(CloseCode.NO_HELLO, "no session.start in time")]
        if self.state is not State.OPEN or now_unix_ms - self._last_ping_unix_ms < self._limits.heartbeat_ms:
            return []
        if self._unanswered_pings >= 2:  # noqa: PLR2004 - the protocol's
            self.state = State.CLOSED
            return [Close(CloseCode.NO_PONG, "two pings went unanswered")]
        self._unanswered_pings += 1
        self._last_ping_unix_ms = now_unix_ms
        return [Send(Ping())]


def error_event(error: ProtocolError, event_id: str | None = None) -> ErrorEvent:
    """The protocol's `error` for what was wrong with a message."""
    detail = ErrorDetail(
        type=error.kind,
        code=error.code,
        message=str(error),
        retryable=error.retriable,
        param=error.param,
        retry_after_ms=error.retry_after_ms,
    )
    return ErrorEvent(error=detail, event_id=event_id)


def _no_tokens(param: str) -> ProtocolError:
    return ProtocolError(
        "tokens_not_supported",
        "this gateway does not check tokens; leave the token out",
        kind="authentication_error",
        param=param,
    )
