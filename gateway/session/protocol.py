"""Decide what a client's messages mean. A pure state machine: messages and time in, effects out.

NEW --session.start--> OPEN --close, token expired--> CLOSED
 └--no hello, wrong first message, bad token--> CLOSED
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from fnmatch import fnmatchcase

from gateway.access.charges import Caller
from gateway.access.identity import Identity, TokenGate
from gateway.session.effects import (
    Ask,
    CancelRequest,
    CheckToken,
    Close,
    CloseCode,
    Effect,
    EraseSession,
    ForPeople,
    OpenSession,
    Refuse,
    Send,
)
from gateway.session.session_limits import SessionLimits
from shared.errors import ProtocolError
from shared.wire.failed_ends import detail_of
from shared.wire.messages import (
    ClientMessage,
    Consent,
    ErrorEvent,
    Feedback,
    HandoffRequest,
    Ping,
    Pong,
    ResponseCancel,
    ResponseCreate,
    SessionClosing,
    SessionCreated,
    SessionDelete,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
)
from shared.wire.session_key import OWNED_PREFIX, SessionKey, owned_session_id

_MINUTE_MS = 60_000
_RECONNECT_MS = 1_000
_PONGS_PER_MINUTE = 120
_REFUSALS_PER_MESSAGE = 10  # times the messages allowed per minute


class SessionState(Enum):
    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(slots=True)
class MessageRate:
    """A token bucket for a connection's messages, one minute deep. `allowance` is in messages and was last refilled at
    `updated_unix_ms`."""

    per_minute: int
    updated_unix_ms: float
    allowance: float = field(init=False)

    def __post_init__(self) -> None:
        self.allowance = float(self.per_minute)

    def spend(self, now_unix_ms: float) -> None:
        """Count one message. Raises `ProtocolError`, with the time to wait, if it exceeds the rate."""
        per_ms = self.per_minute / _MINUTE_MS
        elapsed_ms = max(0.0, now_unix_ms - self.updated_unix_ms)
        self.allowance = min(self.per_minute, self.allowance + elapsed_ms * per_ms)
        self.updated_unix_ms = now_unix_ms  # a clock that was set back refills nothing once
        if self.allowance < 1:
            wait_ms = int((1 - self.allowance) / per_ms) + 1
            raise ProtocolError(
                "rate_limited",
                f"more than {self.per_minute} messages a minute; wait {wait_ms} ms",
                kind="rate_limit_error",
                retriable=True,
                retry_after_ms=wait_ms,
            )
        self.allowance -= 1

    def passes(self, now_unix_ms: float) -> bool:
        """Count one message; return whether it is within the rate."""
        try:
            self.spend(now_unix_ms)
        except ProtocolError:
            return False
        return True


class Session:
    """The session of one connection.

    `connection_id` identifies the socket and `session_id` the conversation as the client names it.

    Args:
        fresh_session_id: the session's id if the client names none, or a function that returns one, called once the
            token is valid
        tenant: every client's tenant if there is no `gate`
        gate: verifies tokens. Then tenant and subject are the token's, and the `key`'s session id, the session's name
            behind the gateway, is unique to that subject. Without a gate, `session_id` alone identifies a conversation.
        address: the client's address, to which usage is charged
        subject: the client's subject if no token names one

    Attributes:
        key: the key of the conversation behind the gateway
        talk: the number of the last person's message that the client has; None if it shows none
        num_replies_due: tasks that may still write to the client, besides its answers
    """

    __slots__ = (
        "_address",
        "_fresh_session_id",
        "_gate",
        "_hello_came",
        "_last_ping_unix_ms",
        "_limits",
        "_pongs",
        "_refusals",
        "_subject",
        "_unanswered_pings",
        "connection_id",
        "consent",
        "identity",
        "key",
        "num_replies_due",
        "opened_unix_ms",
        "rate",
        "session_id",
        "state",
        "talk",
    )

    def __init__(
        self,
        *,
        connection_id: str,
        fresh_session_id: str | Callable[[], str],
        tenant: str,
        gate: TokenGate | None,
        limits: SessionLimits,
        now_unix_ms: float,
        address: str,
        subject: str = "",
    ) -> None:
        self.connection_id = connection_id
        self._fresh_session_id = fresh_session_id
        self.session_id = "" if callable(fresh_session_id) else fresh_session_id
        self.key = SessionKey(tenant, self.session_id)
        self.identity: Identity | None = None
        self.consent: Consent | None = None
        self.talk: int | None = None
        self.num_replies_due = 0
        self._gate = gate
        self._address = address
        self._subject = subject
        self.state = SessionState.NEW
        self._limits = limits
        self.opened_unix_ms = now_unix_ms
        self._hello_came = False
        self._last_ping_unix_ms = now_unix_ms
        self._unanswered_pings = 0
        self.rate = MessageRate(limits.messages_per_minute, now_unix_ms)
        self._pongs = MessageRate(_PONGS_PER_MINUTE, now_unix_ms)
        self._refusals = MessageRate(limits.messages_per_minute * _REFUSALS_PER_MESSAGE, now_unix_ms)

    def receive(self, message: ClientMessage, now_unix_ms: float) -> list[Effect]:
        """Return the effects of a decoded message. Raises `ProtocolError` if the message is refused; the session
        continues."""
        if self.state is SessionState.CLOSED:  # received while the connection was being closed
            return []
        if isinstance(message, Pong):
            self._unanswered_pings = 0
            return [] if self._pongs.passes(now_unix_ms) else [self._end_flood()]
        self.rate.spend(now_unix_ms)
        if self.state is SessionState.NEW:
            return self._start(message, now_unix_ms)
        if self._expired(now_unix_ms):
            return self._end_expired()
        return self._receive_open(message)

    def _receive_open(self, message: ClientMessage) -> list[Effect]:
        match message:
            case ResponseCreate():
                if message.instructions is not None and not self.instructs:
                    why = "instructions need a token with the claim `instructions: true`"
                    raise ProtocolError("instructions_not_allowed", why, param="instructions")
                return [Ask(message, self.caller)]
            case ResponseCancel():
                if message.response_id is None and message.target_event_id is None:
                    raise ProtocolError("invalid_field", "name a response_id or a target_event_id", param="response_id")
                return [CancelRequest(message.response_id, message.target_event_id)]
            case HandoffRequest() | Feedback():
                return [ForPeople(message)]
            case SessionDelete():
                return [EraseSession()]
            case SessionStart():
                raise ProtocolError("already_started", "the session is started; open another connection for another")
            case SessionRefresh():
                return [CheckToken(message, message.token)]
            case Pong():
                return []

    def check_token(self, check: CheckToken, now_unix_ms: float) -> list[Effect]:
        """Return the effects of the message in `check`, once the token's key was fetched. Raises `ProtocolError`."""
        self._hello_came = False
        if self.state is SessionState.CLOSED:
            return []
        if isinstance(check.message, SessionStart):
            return self._open(check.message, now_unix_ms)
        if self._expired(now_unix_ms):
            return self._end_expired()
        return self._refresh(check.token, now_unix_ms)

    def _start(self, message: ClientMessage, now_unix_ms: float) -> list[Effect]:
        if not isinstance(message, SessionStart):
            self.state = SessionState.CLOSED
            return [Close(CloseCode.NO_HELLO, "the first message must be session.start")]
        if message.token:
            self._hello_came = True  # the hello timeout does not apply while the keys are fetched
            return [CheckToken(message, message.token)]
        return self._open(message, now_unix_ms)

    def _open(self, message: SessionStart, now_unix_ms: float) -> list[Effect]:
        try:
            self.identity = _identify(self._gate, message.token, now_unix_ms)
        except ProtocolError as error:
            if self._gate is None:
                raise
            return [Refuse(error), self.reject(error)]
        if callable(self._fresh_session_id):
            self.session_id = self._fresh_session_id()
        self._name_session(message.session_id)
        self.consent, self.talk = message.consent, message.talk
        self.state = SessionState.OPEN
        return [OpenSession(message.resume, returns=message.session_id is not None)]

    def reject(self, error: ProtocolError) -> Close:
        """Close a session that cannot be opened or continued, with the error's close code."""
        self.state = SessionState.CLOSED
        return Close(_code_of(error), error.code)

    def refuse(self, now_unix_ms: float) -> Close | None:
        """Count a refused message. Return the effect that closes the session if there were too many."""
        if self.state is SessionState.CLOSED or self._refusals.passes(now_unix_ms):
            return None
        return self._end_flood()

    def _end_flood(self) -> Close:
        self.state = SessionState.CLOSED
        return Close(CloseCode.FLOOD, "too many refused messages or pongs")

    @property
    def caller(self) -> Caller:
        """Return the payer of the session's requests. For an edge this is the conversation, because an edge's
        subject and address serve many customers."""
        if self.identity is not None and self.identity.edge:
            return Caller(self.key, self.key.session_id)
        subject = self._subject if self.identity is None else self.identity.subject
        return Caller(self.key, subject, self._address)

    @property
    def instructs(self) -> bool:
        """Return whether the client may replace the shop's instructions to the model."""
        return self.identity is not None and self.identity.instructs

    def created(self, *, recovered: bool, replayed: int) -> SessionCreated:
        """Return the first message to the client of an open session."""
        return SessionCreated(
            session_id=self.session_id,
            connection_id=self.connection_id,
            recovered=recovered,
            replayed=replayed,
            limits=self._limits.announced,
            heartbeat_s=self._limits.heartbeat_ms / 1_000,
            expires_at=None if self.identity is None else int(self.identity.expires_unix_ms),
            handoff=self._limits.handoff,
        )

    def _name_session(self, asked: str | None) -> None:
        """Set the session's names. Sessions of different subjects are separate even if they have the same name; an edge
        uses the name that its own gateway gave. Raises `ProtocolError`."""
        if self.identity is None:
            if asked is not None and asked.startswith(OWNED_PREFIX):
                raise ProtocolError(
                    "invalid_field", f"no session can be named {OWNED_PREFIX}…; choose another", param="session_id"
                )
            self.session_id = asked or self.session_id
            self.key = SessionKey(self.key.tenant, self.session_id)
        else:
            self.session_id = asked or self.session_id
            own = self.session_id if self.identity.edge else owned_session_id(self.identity.subject, self.session_id)
            self.key = SessionKey(self.identity.tenant, own)
        if not any(fnmatchcase(self.key.tenant, each) for each in self._limits.tenants):
            why = f"tenant {self.key.tenant!r} is not on the allow-list; add it to REPLYLINE_KAFKA__TENANTS"
            raise ProtocolError("tenant_not_allowed", why)

    def _refresh(self, token: str, now_unix_ms: float) -> list[Effect]:
        """Replace the session's token by a newer one of the same subject. The newer claims apply, and the expiry is
        never shortened. Raises `ProtocolError` without changing the session."""
        newer = _identify(self._gate, token, now_unix_ms)
        if newer is None or self.identity is None:  # an empty token, at a gateway that checks no tokens
            raise ProtocolError("invalid_field", "the token is empty", param="token")
        if not newer.same_person(self.identity):
            raise ProtocolError(
                "unauthorized",
                "the token names another tenant or subject than the session, or only one of both is an edge's; "
                "open another connection for it",
                kind="authentication_error",
                param="token",
            )
        expires_unix_ms = max(newer.expires_unix_ms, self.identity.expires_unix_ms)
        self.identity = replace(newer, expires_unix_ms=expires_unix_ms)
        return [Send(SessionRefreshed(expires_at=int(self.identity.expires_unix_ms)))]

    def _expired(self, now_unix_ms: float) -> bool:
        return self._gate is not None and self.identity is not None and self._gate.expired(self.identity, now_unix_ms)

    def _end_expired(self) -> list[Effect]:
        """Close a session whose token has expired. The delay to reconnect is derived from the connection's id, so that
        clients do not all return together."""
        self.state = SessionState.CLOSED
        reconnect_after_ms = zlib.crc32(self.connection_id.encode()) % _RECONNECT_MS
        closing = SessionClosing(reason="token_expired", reconnect_after_ms=reconnect_after_ms)
        return [Send(closing), Close(CloseCode.TOKEN_EXPIRED, "the token has expired")]

    def tick(self, now_unix_ms: float) -> list[Effect]:
        """Return the effects of time: a late hello, an expired token, a ping, missing pongs. If the clock was set back
        by more than an interval, the interval counts as elapsed, so that no client waits for the clock to catch up."""
        waited_ms = abs(now_unix_ms - self.opened_unix_ms)
        if self.state is SessionState.NEW and not self._hello_came and waited_ms >= self._limits.hello_timeout_ms:
            self.state = SessionState.CLOSED
            return [Close(CloseCode.NO_HELLO, "no session.start in time")]
        if self.state is SessionState.OPEN and self._expired(now_unix_ms):
            return self._end_expired()
        heartbeat_ms = self._limits.heartbeat_ms or math.inf
        if self.state is not SessionState.OPEN or abs(now_unix_ms - self._last_ping_unix_ms) < heartbeat_ms:
            return []
        if self._unanswered_pings >= 2:  # noqa: PLR2004 - fixed by the protocol
            self.state = SessionState.CLOSED
            return [Close(CloseCode.NO_PONG, "two pings went unanswered")]
        self._unanswered_pings += 1
        self._last_ping_unix_ms = now_unix_ms
        return [Send(Ping())]


def error_event(error: ProtocolError, event_id: str | None = None) -> ErrorEvent:
    """Return the `error` event for a refused message."""
    return ErrorEvent(error=detail_of(error), event_id=event_id)


def _identify(gate: TokenGate | None, token: str | None, now_unix_ms: float) -> Identity | None:
    """Return the identity in the token; None if the gateway checks no tokens. Raises `ProtocolError`."""
    if gate is not None and token:
        return gate.identify(token, now_unix_ms)
    if gate is None and not token:
        return None
    why = (
        ("tokens_not_supported", "this gateway does not check tokens; leave the token out")
        if gate is None
        else ("unauthorized", "this gateway requires a token in session.start")
    )
    raise ProtocolError(*why, kind="authentication_error", param="token")


def _code_of(error: ProtocolError) -> CloseCode:
    """Return the close code for an error. The code lets the client reconnect if a later attempt, or a new token, can
    succeed."""
    if error.code == "token_expired":
        return CloseCode.TOKEN_EXPIRED
    if error.code == "too_many_connections":
        return CloseCode.CONNECTION_LIMIT
    return CloseCode.INTERNAL if error.retriable else CloseCode.INVALID_TOKEN
