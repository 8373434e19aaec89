"""Every client action with a cost is charged before it is done; one over the limit is reported and not done."""

from typing import Any

import pytest

from gateway.access.charges import Caller, Kind
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session, SessionState
from gateway.session.session_limits import SessionLimits
from shared.sockets.open_sockets import OpenSockets
from shared.wire.messages import (
    ClientMessage,
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    HandoffRequest,
    Pong,
    ResponseCancel,
    ResponseCreate,
    Resume,
    SessionCreated,
    SessionDelete,
    SessionDeleted,
    SessionRefresh,
    SessionStart,
)
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateway_services import FakeQuotas
from tests.support.fakes.gateways import TOPICS, Edge, FakeConnection, quiet
from tests.support.fakes.sessions import ANNOUNCED, guarded, new
from tests.support.tokens import gate, token
from tests.unit.gateway.people.test_handoffs import Broker, Store, made

START, NAMED = SessionStart(), SessionStart(session_id="s")
ASK = ResponseCreate(event_id="e", input="How do I return an item?")
PERSON, RATING = HandoffRequest(event_id="h"), Feedback(event_id="f", response_id="r", rating="up")
WHO = Caller(SessionKey("demo", "s"), address="192.0.2.7")


@pytest.fixture
def edge() -> Edge:
    return Edge(people=True)


def errors(client: FakeConnection) -> list[tuple[str | None, str]]:
    return [(each.event_id, each.error.code) for each in client.heard if isinstance(each, ErrorEvent)]


def checked(edge: Edge) -> FakeConnection:
    """A connection that has to show a token."""
    client = edge.connect()
    name, client.session = client.session.connection_id, new(gate=gate(), now=0)
    client.session.connection_id = name
    return client


@pytest.mark.parametrize(
    ("message", "kind"),
    [(ASK, "ask"), (SessionDelete(), "delete"), (PERSON, "handoff"), (RATING, "feedback")],
)
async def test_each_message_that_costs_is_charged_here_and_at_all_gateways(
    edge: Edge, message: ClientMessage, kind: Kind
) -> None:
    client = await edge.connect().say(NAMED)
    await client.say(message)
    await quiet()
    assert edge.quotas.here == edge.quotas.shared == [("resume", WHO), (kind, WHO)]
    assert edge.quotas.num_chars == [0, len(ASK.input) if message is ASK else 0]


@pytest.mark.parametrize("start", [NAMED, SessionStart(resume=Resume(cursor="c"))])
async def test_a_resumed_session_is_charged_and_a_new_one_is_not(edge: Edge, start: SessionStart) -> None:
    """Nor is an action without cost."""
    await edge.connect().say(START, Pong(), ResponseCancel(response_id="none"))
    assert edge.quotas.here == edge.quotas.shared == []
    await edge.connect().say(start)
    assert [kind for kind, _ in edge.quotas.here] == ["resume"]


@pytest.mark.parametrize(
    ("message", "kind", "event_id", "told"),
    [
        (ASK, "ask", "e", None),
        (SessionDelete(), "delete", None, SessionDeleted),
        (PERSON, "handoff", "h", None),
        (RATING, "feedback", "f", FeedbackRecorded),
    ],
)
async def test_an_action_over_the_limit_is_reported_and_not_done(
    edge: Edge, message: ClientMessage, kind: Kind, event_id: str | None, told: type[Any] | None
) -> None:
    """The connection stays."""
    edge.quotas.used_up = {kind}
    client = await edge.connect().say(START, message)
    await quiet()
    (error,) = [each for each in client.heard if isinstance(each, ErrorEvent)]
    assert (error.error.code, error.error.retryable, error.error.retry_after_ms) == ("rate_limited", True, 9)
    assert error.event_id == event_id
    assert not [each for each in client.heard if told is not None and isinstance(each, told)]
    assert edge.producer.published == []
    assert client.closed_with is None
    assert len(edge.gateway.inflight) == 0


async def test_a_client_that_reconnects_too_often_is_closed_and_may_return(edge: Edge) -> None:
    """Its cursor is valid the next time: nothing is lost, and the gateway reports no failed recovery."""
    edge.quotas.used_up = {"resume"}
    client = await edge.connect().say(NAMED, ASK)
    assert [type(each) for each in client.heard] == [ErrorEvent]
    assert client.closed_with == CloseCode.INTERNAL
    assert client.session.state is SessionState.CLOSED
    assert edge.producer.of(TOPICS.requests("short")) == []


async def test_a_question_that_asks_for_a_person_costs_both(edge: Edge) -> None:
    wish = ResponseCreate(event_id="e", input="Can I talk to a human?")
    await edge.connect().say(NAMED, wish)
    await quiet()
    assert [kind for kind, _ in edge.quotas.shared] == ["resume", "ask", "handoff"]


@pytest.mark.parametrize("whose", ["the caller's units", "the tenant's people"])
async def test_a_wish_for_a_person_over_the_limit_is_answered_as_a_normal_question(edge: Edge, whose: str) -> None:
    """Even if the hand-off limit is used up, no question gets an error."""
    if whose == "the caller's units":
        edge.quotas.used_up = {"handoff"}
    else:
        edge.gateway.people.handoffs = made(Broker(), Store(), quotas=FakeQuotas(handoffs_left=0))
    client = await edge.connect().say(START, ResponseCreate(event_id="e", input="Can I talk to a human?"))
    await quiet()
    assert not [each for each in client.heard if isinstance(each, ErrorEvent)]
    assert len(edge.producer.of(TOPICS.requests("short"))) == 1


class Keys:
    """An identity provider's: what was to be checked with them."""

    def __init__(self) -> None:
        self.prepared: list[str] = []

    async def prepare(self, text: str) -> None:
        self.prepared.append(text)


@pytest.fixture
def keys(edge: Edge) -> Keys:
    made: Any = Keys()
    edge.gateway.jwks = made
    keys: Keys = made
    return keys


async def test_a_token_is_charged_before_its_key_is_fetched(edge: Edge, keys: Keys) -> None:
    """Good or bad: it has to be checked to know."""
    client = await checked(edge).say(SessionStart(token="nonsense"))
    assert [kind for kind, _ in edge.quotas.here] == ["token"]
    assert keys.prepared == ["nonsense"]
    assert client.closed_with == CloseCode.INVALID_TOKEN


async def test_a_token_over_the_limit_is_not_checked_and_its_client_may_return(edge: Edge, keys: Keys) -> None:
    edge.quotas.used_up = {"token"}
    client = await edge.connect().say(SessionStart(token="nonsense"))
    assert errors(client) == [(None, "rate_limited")]
    assert (keys.prepared, client.closed_with) == ([], CloseCode.INTERNAL)


async def test_a_token_over_the_limit_leaves_an_open_session_open(edge: Edge, keys: Keys) -> None:
    client = edge.connect()
    client.session = guarded()
    edge.quotas.used_up = {"token"}
    await client.say(SessionRefresh(token=token()))
    assert errors(client) == [(None, "rate_limited")]
    assert (keys.prepared, client.closed_with, client.session.state) == ([], None, SessionState.OPEN)


async def test_a_hello_whose_keys_take_longer_than_the_hello_timeout_is_accepted(edge: Edge, keys: Keys) -> None:
    """A client that has sent its hello is not closed for the time that its keys take."""
    client, effects = checked(edge), list[object]()

    async def slowly(_: str) -> None:
        effects.extend(client.session.tick(60_000))

    keys.prepare = slowly  # type: ignore[method-assign]
    await client.say(SessionStart(token="nonsense"))
    assert effects == []


async def test_a_caller_is_the_tokens_subject_and_its_address() -> None:
    session = guarded(sub="alice", tenant="shop")
    caller = session.caller
    assert (caller.session.tenant, caller.subject, caller.address) == ("shop", "alice", "192.0.2.7")
    assert caller.session == session.key


def test_a_customer_without_a_token_is_charged_by_the_doors_name_for_them() -> None:
    limits = SessionLimits(hello_timeout_ms=1, heartbeat_ms=0, messages_per_minute=1, announced=ANNOUNCED)
    session = Session(
        connection_id="c",
        fresh_session_id="s",
        tenant="shop",
        gate=None,
        limits=limits,
        now_unix_ms=0,
        address="",
        subject="cw-1",
    )
    assert (session.caller.subject, session.caller.address) == ("cw-1", "")


async def test_an_admitted_tokens_expiry_is_returned(edge: Edge, keys: Keys) -> None:
    client = await checked(edge).say(SessionStart(token=token(exp=2**33)))
    assert [type(each) for each in client.heard] == [SessionCreated]


async def test_a_socket_over_the_limit_is_told_when_to_retry(edge: Edge) -> None:
    edge.gateway.rate_limits.sockets = OpenSockets(most=1)
    first, second = edge.connect(), edge.connect()
    assert errors(second) == [(None, "too_many_connections")]
    assert (first.closed_with, second.closed_with) == (None, CloseCode.CONNECTION_LIMIT)
    edge.gateway.disconnect(first)
    assert edge.connect().closed_with is None


async def test_a_session_over_a_subjects_limit_is_told_when_to_retry(edge: Edge, keys: Keys) -> None:
    edge.gateway.rate_limits.sockets = OpenSockets(most=1_000)
    clients = [await checked(edge).say(SessionStart(token=token(exp=2**33))) for _ in range(11)]
    assert errors(clients[-1]) == [(None, "too_many_connections")]
    assert [client.closed_with for client in clients] == [None] * 10 + [CloseCode.CONNECTION_LIMIT]
