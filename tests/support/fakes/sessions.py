"""Sessions as connections have them: new, opened by a hello, opened by a token."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.access.identity import TokenGate
from gateway.session.effects import CheckToken, Effect
from gateway.session.protocol import Session, SessionState
from gateway.session.session_limits import SessionLimits
from shared.errors import ProtocolError
from shared.wire.messages import (
    ClientMessage,
    Feedback,
    HandoffRequest,
    Limits,
    Pong,
    ResponseCancel,
    ResponseCreate,
    SessionDelete,
    SessionRefresh,
    SessionStart,
)
from tests.support.tokens import NOW_UNIX_MS, gate, token

ANNOUNCED = Limits(
    max_message_bytes=65_536,
    max_input_tokens=1_024,
    max_output_tokens=512,
    max_inflight=4,
    messages_per_minute=6,
    first_token_ms=200,
    deadline_ms=1_000,
)
START, ASK = SessionStart(), ResponseCreate(event_id="e", input="hi")
PERSON, RATING = HandoffRequest(event_id="h"), Feedback(response_id="r", rating="up")
ALL = (
    *(START, ASK, ResponseCancel(response_id="r"), SessionDelete(), SessionRefresh(token="t"), PERSON, RATING, Pong()),
)


def new(
    per_minute: int = 100,
    now: float = 0.0,
    gate: TokenGate | None = None,
    *,
    handoff: bool = False,
    tenants: tuple[str, ...] = ("*",),
) -> Session:
    limits = SessionLimits(
        hello_timeout_ms=5_000,
        heartbeat_ms=25_000,
        messages_per_minute=per_minute,
        announced=ANNOUNCED,
        handoff=handoff,
        tenants=tenants,
    )
    return Session(
        connection_id="conn_1",
        fresh_session_id="sess_1",
        tenant="demo",
        gate=gate,
        limits=limits,
        now_unix_ms=now,
        address="192.0.2.7",
    )


def receive(session: Session, message: ClientMessage, now: float) -> list[Effect]:
    """Return the effects of a message whose token is checked immediately."""
    effects: list[Effect] = []
    for effect in session.receive(message, now):
        effects += session.check_token(effect, now) if isinstance(effect, CheckToken) else [effect]
    return effects


def opened(per_minute: int = 100) -> Session:
    session = new(per_minute)
    session.receive(START, 0)
    return session


def refused(call: Callable[[], object]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        call()
    return caught.value


def guarded(**changed: Any) -> Session:
    """A session that was opened by a token of these claims."""
    session = new(now=NOW_UNIX_MS, gate=gate())
    receive(session, SessionStart(token=token(**changed), session_id="mine"), NOW_UNIX_MS)
    assert session.state is SessionState.OPEN
    return session
