"""A session is opened by a token, belongs to its subject, and ends with it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.identity import TokenGate
from gateway.access.token_keys import KeySet
from gateway.session.effects import Ask, Close, CloseCode, OpenSession, Refuse, Send
from gateway.session.protocol import SessionState
from shared.wire.fields import MAX_ID_CHARS, Identifier
from shared.wire.messages import (
    ClientMessage,
    ResponseCreate,
    SessionClosing,
    SessionDelete,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
)
from shared.wire.session_key import owned_session_id
from tests.support.fakes.sessions import ASK, guarded, new, receive, refused
from tests.support.hostile.message_strategies import NAMES
from tests.support.tokens import KEYS, NOW_UNIX_MS, NOW_UNIX_S, RULES, gate, token


def test_a_token_opens_the_session_and_names_its_owner() -> None:
    session = new(now=NOW_UNIX_MS, gate=gate())
    assert receive(session, SessionStart(token=token(tenant="shop"), session_id="mine"), NOW_UNIX_MS) == [
        OpenSession(None, returns=True)
    ]
    assert session.created(recovered=False, replayed=0).expires_at == (NOW_UNIX_S + 60) * 1_000
    assert (session.key.tenant, session.session_id) == ("shop", "mine")


@pytest.mark.parametrize(
    ("text", "code", "close"),
    [
        *((text, "unauthorized", CloseCode.INVALID_TOKEN) for text in (None, "", "nonsense", token(aud="billing"))),
        (token(exp=NOW_UNIX_S - 60), "token_expired", CloseCode.TOKEN_EXPIRED),
        (token("RS256", headers={"kid": "new"}), "keys_unavailable", CloseCode.INTERNAL),
    ],
)
def test_without_a_good_token_the_session_is_refused_and_closed(text: str | None, code: str, close: int) -> None:
    """If some keys could not be read, its client is asked to retry."""
    session = new(now=NOW_UNIX_MS, gate=TokenGate(RULES, KeySet(KEYS.keys, complete=False)))
    refuse, closing = receive(session, SessionStart(token=text), NOW_UNIX_MS)
    assert isinstance(refuse, Refuse)
    assert refuse.error.code == code
    assert closing == Close(close, code)
    assert session.state is SessionState.CLOSED
    assert receive(session, SessionStart(token=token()), NOW_UNIX_MS) == []


@pytest.mark.parametrize("guards", [False, True], ids=["without tokens", "with tokens"])
def test_a_tenant_that_is_not_listed_opens_no_session(guards: bool) -> None:
    """Neither would the workers answer its questions."""
    start = SessionStart(token=token(tenant="demo") if guards else None, session_id="mine")
    for tenants, error in ((("d*", "x"), None), (("shop.*",), "tenant_not_allowed")):
        session = new(now=NOW_UNIX_MS, gate=gate() if guards else None, tenants=tenants)
        if error is None:
            assert receive(session, start, NOW_UNIX_MS) == [OpenSession(None, returns=True)]
        else:
            assert refused(lambda: receive(session, start, NOW_UNIX_MS)).code == error  # noqa: B023 - called here
            assert session.state is SessionState.NEW


@pytest.mark.parametrize("claims", [{}, {"instructions": False}, {"instructions": True}])
def test_instructions_are_a_right_of_the_token(claims: dict[str, bool]) -> None:
    session = guarded(**claims)
    asked = msgspec.structs.replace(ASK, instructions="Rhyme.")
    if claims.get("instructions"):
        assert receive(session, asked, NOW_UNIX_MS) == [Ask(asked, session.caller)]
    else:
        assert refused(lambda: receive(session, asked, NOW_UNIX_MS)).code == "instructions_not_allowed"
    assert receive(session, ASK, NOW_UNIX_MS) == [Ask(ASK, session.caller)]


def test_the_same_session_id_is_a_different_session_for_each_subject() -> None:
    """In every form in which the gateway and the workers know a conversation."""
    sessions = [guarded(**who) for who in ({}, {"sub": "bob"}, {"tenant": "shop"}, {"tenant": "shop", "sub": "bob"})]
    assert {session.session_id for session in sessions} == {"mine"}
    assert len({session.key for session in sessions}) == 4
    assert guarded().key.session_id == sessions[0].key.session_id


@given(st.text(min_size=1), st.text(min_size=1), NAMES, NAMES)
def test_no_two_subjects_share_a_conversation(one: str, other: str, session: str, another: str) -> None:
    names = {owned_session_id(who, which) for who in {one, other} for which in {session, another}}
    assert len(names) == len({one, other}) * len({session, another})
    for name in names:
        assert len(name) == MAX_ID_CHARS
        assert msgspec.convert(name, Identifier) == name


def test_a_client_without_a_token_can_name_no_owned_conversation() -> None:
    session = new()
    owned = guarded().key.session_id
    assert refused(lambda: receive(session, SessionStart(session_id=owned), 0)).param == "session_id"
    receive(session, SessionStart(session_id="mine"), 0)
    assert session.key.session_id == "mine"


def test_an_empty_token_refreshes_no_session_of_a_gateway_without_token_checks() -> None:
    session = new()
    receive(session, SessionStart(), NOW_UNIX_MS)
    assert refused(lambda: receive(session, SessionRefresh(token=""), NOW_UNIX_MS)).param == "token"


def test_the_session_ends_with_its_token() -> None:
    session = guarded()
    expires = (NOW_UNIX_S + 60) * 1_000
    assert Close(CloseCode.TOKEN_EXPIRED, "the token has expired") not in session.tick(expires - 1)
    closing, close = session.tick(expires)
    assert isinstance(closing, Send)
    assert isinstance(closing.message, SessionClosing)
    assert closing.message.reason == "token_expired"
    assert 0 <= closing.message.reconnect_after_ms < 1_000
    assert close == Close(CloseCode.TOKEN_EXPIRED, "the token has expired")
    assert session.tick(expires + 1) == []
    assert receive(session, ASK, expires + 1) == []


@pytest.mark.parametrize("message", [ASK, SessionDelete(), SessionRefresh(token=token(exp=NOW_UNIX_S + 999))])
def test_nothing_is_carried_out_after_the_token_has_expired(message: ClientMessage) -> None:
    """The clock's next tick may be a second away."""
    effects = receive(guarded(), message, (NOW_UNIX_S + 60) * 1_000)
    assert [type(effect) for effect in effects] == [Send, Close]


@pytest.mark.parametrize(("first_s", "then_s"), [(60, 600), (600, 60)])
def test_a_newer_token_of_the_same_subject_extends_the_session_and_an_older_one_does_not_shorten_it(
    first_s: int, then_s: int
) -> None:
    session = guarded(exp=NOW_UNIX_S + first_s)
    until = (NOW_UNIX_S + 600) * 1_000
    effects = receive(session, SessionRefresh(token=token("EdDSA", exp=NOW_UNIX_S + then_s)), NOW_UNIX_MS + 1)
    assert effects == [Send(SessionRefreshed(expires_at=until))]
    assert not any(isinstance(effect, Close) for effect in session.tick(until - 1))
    assert isinstance(session.tick(until)[-1], Close)


@pytest.mark.parametrize(
    "text",
    [
        token(sub="bob", exp=NOW_UNIX_S + 999),
        token(tenant="shop", exp=NOW_UNIX_S + 999),
        token(edge=True, exp=NOW_UNIX_S + 999),
        token(exp=NOW_UNIX_S - 60),
        "nonsense",
        "",
    ],
)
def test_a_token_that_does_not_match_is_refused_and_the_session_is_unchanged(text: str) -> None:
    session = guarded()
    before = (session.identity, session.key)
    assert refused(lambda: receive(session, SessionRefresh(token=text), NOW_UNIX_MS)).kind == "authentication_error"
    assert (session.identity, session.key) == before
    assert receive(session, ASK, NOW_UNIX_MS) == [Ask(ASK, session.caller)]
    assert isinstance(session.tick((NOW_UNIX_S + 60) * 1_000)[-1], Close)


def test_a_customers_token_does_not_keep_an_edges_conversation() -> None:
    """An edge's session has the conversation's name, for any subject; the subject's other tokens reach only their
    conversations."""
    session = guarded(edge=True)
    text = token(exp=NOW_UNIX_S + 999)
    assert refused(lambda: receive(session, SessionRefresh(token=text), NOW_UNIX_MS)).code == "unauthorized"
    assert isinstance(session.tick((NOW_UNIX_S + 60) * 1_000)[-1], Close)


def test_a_session_ends_when_its_token_is_revoked() -> None:
    checked, revoked = gate(), (NOW_UNIX_S - 1) * 1_000.0
    sessions = [new(now=NOW_UNIX_MS, gate=checked) for _ in range(2)]
    for session, issued_s in zip(sessions, (NOW_UNIX_S - 1, NOW_UNIX_S), strict=True):
        receive(session, SessionStart(token=token(edge=True, iat=issued_s), session_id="s"), NOW_UNIX_MS)
    checked.revoked_until = {("demo", "alice"): revoked}
    closes = [any(isinstance(effect, Close) for effect in session.tick(NOW_UNIX_MS + 1)) for session in sessions]
    assert closes == [True, False]


def test_the_newest_tokens_claims_apply_whenever_it_expires() -> None:
    session = guarded(exp=NOW_UNIX_S + 60, instructions=True)
    asks = ResponseCreate(event_id="e", input="hi", instructions="Rhyme.")
    assert session.receive(asks, NOW_UNIX_MS) == [Ask(asks, session.caller)]
    receive(session, SessionRefresh(token=token(exp=NOW_UNIX_S + 50)), NOW_UNIX_MS)
    assert refused(lambda: session.receive(asks, NOW_UNIX_MS)).code == "instructions_not_allowed"
    receive(session, SessionRefresh(token=token(exp=NOW_UNIX_S + 40, instructions=True)), NOW_UNIX_MS)
    assert session.receive(asks, NOW_UNIX_MS) == [Ask(asks, session.caller)]
