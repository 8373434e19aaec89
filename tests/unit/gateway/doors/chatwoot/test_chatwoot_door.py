"""Only webhooks recently signed by Chatwoot are read, only a customer's question to the bot is accepted, and no body
causes a fault.
"""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.doors.chatwoot.door import _MOST_LARGE, ChatwootDoor
from gateway.doors.chatwoot.events import (
    CustomerMessage,
    Errand,
    check_signature,
    decode_errand,
    read_event,
    session_name,
)
from gateway.doors.chatwoot.poster import ChatwootPoster, Conversation
from gateway.exchange.question import Asker
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.wire.codec import msgpack_encode
from tests.support.fakes.gateways import Edge, delta, quiet
from tests.support.fakes.openai_doors import http_of
from tests.support.servers.chatwoot import SECRET, message_created, signed

NOW = 1_790_000_000
CANARY = "my-card-is-4111"
QUESTION = "How do I return an item?"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(CANARY),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
EVENTS = st.dictionaries(
    st.sampled_from(["event", "id", "content", "message_type", "private", "account", "conversation"]), ANYTHING
).map(lambda changed: json.loads(message_created(1, QUESTION)) | changed)


def headers_of(body: bytes, **about: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in signed(body, **about).items()}


# --- the signature


@given(body=st.binary(max_size=50), ago=st.integers(-300, 300))
def test_a_recent_signature_of_chatwoot_is_accepted(body: bytes, ago: int) -> None:
    check_signature(headers_of(body, sent_s=NOW - ago), body, SECRET, NOW)


@given(body=st.binary(min_size=1, max_size=50), at=st.integers(0), flip=st.integers(1, 255))
def test_a_changed_body_is_refused(body: bytes, at: int, flip: int) -> None:
    at %= len(body)
    changed = body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]
    with pytest.raises(ProtocolError, match="signature"):
        check_signature(headers_of(body, sent_s=NOW), changed, SECRET, NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"x-chatwoot-timestamp": str(NOW - 301)},
        {"x-chatwoot-timestamp": str(NOW - 1)},
        {"x-chatwoot-timestamp": "²"},
        {"x-chatwoot-timestamp": "9" * 5_000},
        {"x-chatwoot-timestamp": ""},
        {"x-chatwoot-signature": "sha256=é\udcff"},
        {"x-chatwoot-signature": ""},
    ],
)
def test_other_headers_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_signature(headers_of(b"{}", sent_s=NOW) | changed, b"{}", SECRET, NOW)
    assert refused.value.kind == "authentication_error"


def test_a_replayed_webhook_is_refused() -> None:
    with pytest.raises(ProtocolError, match="300 s ago"):
        check_signature(headers_of(b"{}", sent_s=NOW - 301), b"{}", SECRET, NOW)


# --- the payload


@pytest.mark.parametrize(
    "changed",
    [
        {"event": "message_updated"},
        {"event": "webwidget_triggered", "conversation": None},
        {"message_type": "outgoing"},
        {"private": True},
        {"status": "open"},
        {"status": "resolved"},
    ],
)
def test_a_message_not_meant_for_the_bot_is_ignored(changed: dict[str, Any]) -> None:
    assert read_event(message_created(1, QUESTION, **changed)) is None


def test_a_conversation_is_one_session_that_no_other_client_can_name() -> None:
    asked = read_event(message_created(17, f" {QUESTION}\n"))
    assert asked == CustomerMessage(1, 17, 4_017, QUESTION)
    assert session_name(asked, SECRET).startswith("chatwoot-1-17-")
    assert session_name(asked, SECRET) == session_name(CustomerMessage(1, 17, 9, "Another"), SECRET)
    assert session_name(asked, SECRET) != session_name(asked, b"another secret")
    longest = CustomerMessage(2**31 - 1, 2**31 - 1, 1, "")
    assert len(session_name(longest, SECRET)) <= 64


@given(event=EVENTS | ANYTHING)
def test_any_body_is_a_question_or_ignored_or_an_error_without_its_text(event: Any) -> None:
    told = ""
    try:
        read_event(json.dumps(event).encode())
    except ProtocolError as error:
        told = f"{error.code} {error} {error.param}"
    assert CANARY not in told


@given(data=st.binary(max_size=100))
def test_any_bytes_are_an_errand_or_refused(data: bytes) -> None:
    errand = Errand(account=1, conversation=2, tenant="t", session_id="s", created_unix_ms=3, problem="no_text")
    assert decode_errand(msgpack_encode(errand)) == errand
    with pytest.raises(ProtocolError):
        decode_errand(data)


# --- the door


@dataclass
class Posts:
    """Kafka's topic of errands."""

    away: bool = False
    taken: list[Errand] = field(default_factory=list)

    async def publish(self, record: Outgoing) -> None:
        if self.away:
            raise BrokerUnavailable("away")
        self.taken.append(decode_errand(record.value))


def client_of(edge: Edge, posts: Any) -> httpx2.AsyncClient:
    door = ChatwootDoor(http=http_of(edge), producer=posts, topic="chat.posts", key=SECRET)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door.app()), base_url="http://gateway")


async def posted(client: httpx2.AsyncClient, body: bytes, **changed: str) -> int:
    return (
        await client.post("/chatwoot", content=body, headers=signed(body, sent_s=time.time()) | changed)
    ).status_code


async def test_a_question_becomes_an_errand_that_yields_its_answer() -> None:
    """Kafka accepts no requests: the FAQ answers immediately."""
    posts = Posts()
    async with client_of(Edge(kafka_is_away=True), posts) as client:
        assert await posted(client, message_created(1, QUESTION)) == 200
        assert await posted(client, message_created(1, None)) == 200
        assert await posted(client, message_created(1, QUESTION, status="open")) == 200
    first, second = posts.taken
    assert (first.conversation, first.problem) == (1, None)
    assert first.cursor
    assert (second.cursor, second.problem) == (None, "no_text")


async def test_an_email_too_long_to_answer_is_handed_to_people() -> None:
    posts, email = Posts(), {"email": {"html_content": {"full": "<p>" * 100_000}}}
    async with client_of(Edge(kafka_is_away=True), posts) as client:
        assert await posted(client, message_created(1, "word " * 30_000)) == 200
        assert await posted(client, message_created(2, QUESTION, content_attributes=email)) == 200
        assert await posted(client, message_created(3, "word " * 300_000)) == 413
    assert [errand.problem for errand in posts.taken] == ["input_too_long", None]


async def test_slow_webhooks_that_are_not_large_keep_no_large_one_out() -> None:
    body, stalled = message_created(1, "word " * 30_000), asyncio.Event()

    async def stall() -> AsyncIterator[bytes]:
        await stalled.wait()
        yield b"{}"

    async with client_of(Edge(kafka_is_away=True), Posts()) as client:
        small = {"content-length": "2"}
        slow = [client.post("/chatwoot", content=stall(), headers=small) for _ in range(_MOST_LARGE)]
        strangers = [asyncio.create_task(each) for each in slow]
        await quiet()
        assert await posted(client, body) == 200
        stalled.set()
        await asyncio.gather(*strangers)


async def test_a_large_webhook_may_be_compressed() -> None:
    body = message_created(1, "word " * 30_000)
    headers = signed(body, sent_s=time.time()) | {"content-encoding": "gzip"}
    async with client_of(Edge(kafka_is_away=True), Posts()) as client:
        found = await client.post("/chatwoot", content=gzip.compress(body), headers=headers)
        assert found.status_code == 200


async def test_few_large_webhooks_are_read_before_their_sender_is_known() -> None:
    """Chatwoot tries again after 429."""
    body, stalled = message_created(1, "word " * 30_000), asyncio.Event()

    async def stall() -> AsyncIterator[bytes]:
        yield body[:1]
        await stalled.wait()

    async with client_of(Edge(kafka_is_away=True), Posts()) as client:
        strangers = [asyncio.create_task(client.post("/chatwoot", content=stall())) for _ in range(_MOST_LARGE)]
        await quiet()
        assert await posted(client, body) == 429
        assert await posted(client, message_created(1, QUESTION)) == 200
        stalled.set()
        await asyncio.gather(*strangers)
        assert await posted(client, body) == 200


async def test_a_question_that_kafka_does_not_accept_asks_for_a_retry() -> None:
    """Chatwoot tries no other status but 500 again."""
    async with client_of(Edge(kafka_is_away=True), Posts(away=True)) as client:
        assert await posted(client, message_created(1, QUESTION)) == 429


async def test_a_repeated_delivery_at_another_gateway_yields_the_same_answer() -> None:
    """The gateway that carries the errand out has the answer from a worker, and has not read its question."""
    body, posts, edge, elsewhere = message_created(1, QUESTION), Posts(), Edge(), Edge(partition=1)
    async with client_of(edge, posts) as client, client_of(elsewhere, posts) as other:
        assert await posted(client, body, **{"X-Chatwoot-Delivery": "d"}) == 200
        session, cursor = posts.taken[0].session_id, posts.taken[0].cursor
        poster = await http_of(elsewhere).exchanges.resume(Asker(), session, cursor or "")
        elsewhere.receive_replies([delta(edge.asked[0].id, "Within", session_id=session)])
        assert await posted(other, body, **{"X-Chatwoot-Delivery": "d"}) == 200
    assert poster.points
    assert (posts.taken[1].cursor is not None, posts.taken[1].problem) == (True, None)


@dataclass
class Api:
    """Chatwoot's API: a pending conversation."""

    said: list[str] = field(default_factory=list)

    async def conversation(self, errand: Errand) -> Conversation:
        del errand
        return Conversation(status="pending")

    async def say(self, errand: Errand, text: str, *, private: bool) -> None:
        assert not private
        del errand
        self.said.append(text)

    async def typing(self, errand: Errand, *, on: bool) -> None: ...


@pytest.mark.parametrize("delivery", ["the same", "another"])
async def test_a_webhook_that_is_replayed_later_posts_no_second_answer(delivery: str) -> None:
    """Also at a gateway that has forgotten the question, or never had it."""
    body, posts, first, later = (
        message_created(1, QUESTION),
        Posts(),
        Edge(kafka_is_away=True),
        Edge(kafka_is_away=True),
    )
    api: Any = Api()
    poster = ChatwootPoster(exchanges=http_of(first).exchanges, api=api)
    async with client_of(first, posts) as client, client_of(later, posts) as other:
        assert await posted(client, body, **{"X-Chatwoot-Delivery": "the same"}) == 200
        assert await posted(other, body, **{"X-Chatwoot-Delivery": delivery}) == 200
    for errand in posts.taken:
        record = Record("chat.posts", 0, 0, None, msgpack_encode(errand))
        await poster.post(record, again=False)
    assert len(posts.taken) == 2
    assert len(api.said) == 1


@settings(max_examples=60, deadline=None)
@given(event=EVENTS | ANYTHING)
async def test_no_body_breaks_the_door(event: Any) -> None:
    """429: a question without an FAQ entry must be retried, because Kafka is away."""
    posts = Posts()
    async with client_of(Edge(kafka_is_away=True), posts) as client:
        assert await posted(client, json.dumps(event).encode()) in {200, 400, 429}
        before = len(posts.taken)
        assert await posted(client, message_created(2, QUESTION)) == 200
    assert len(posts.taken) == before + 1


async def test_nothing_of_a_message_is_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with client_of(Edge(kafka_is_away=True), Posts()) as client:
        body = message_created(1, CANARY)
        for sent, changed in ((body, {}), (body, {"X-Chatwoot-Signature": CANARY}), (body[:-1], {})):
            await posted(client, sent, **changed)
        await client.get(f"/{CANARY}")
    assert CANARY not in "".join(capfd.readouterr())


async def test_each_conversation_is_charged_as_its_own_subject() -> None:
    edge = Edge()
    async with client_of(edge, Posts()) as client:
        for number in (1, 2):
            assert await posted(client, message_created(number, QUESTION)) == 200
    charged = [caller.subject for kind, caller in edge.quotas.shared if kind == "ask"]
    assert charged == [asked.session_id for asked in edge.asked]
    assert len(set(charged)) == 2


async def test_used_up_quota_of_a_conversation_has_chatwoot_try_again() -> None:
    edge = Edge()
    edge.quotas.used_up = {"ask"}
    async with client_of(edge, Posts()) as client:
        assert await posted(client, message_created(1, QUESTION)) == 429
