"""Two gateways and one Redis: a conversation moves only while it has no open question, and all its messages follow the
question.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import fakeredis
import pytest
import pytest_asyncio
from msgspec import msgpack

from gateway.destination import claim
from gateway.request.entry import response_id
from shared.conversation.places import Places
from shared.errors import StoreUnavailable
from shared.kafka.producer import partition_of
from shared.process.clock import now_unix_ms
from shared.redis import client as redis_client
from shared.settings import Settings
from shared.settings.redis import RedisSettings
from shared.versions.state import Rule, State
from shared.wire.codec import decode_request
from shared.wire.messages import ChatRequest, Erase, ResponseCancel, ResponseCreate, Resume, SessionStart
from shared.wire.reports import Observation
from shared.wire.requests import settle
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import report
from tests.support.builders.wire import done
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import TOPICS, Edge, FakeConnection, quiet

PARTITIONS: Final = 4
SESSION: Final = SessionKey("demo", "s")
HOME: Final = partition_of(SESSION.record_key, PARTITIONS)
AWAY: Final = (HOME + 1) % PARTITIONS
DEFAULTS: Final = Settings().request_defaults
LATE_MS: Final = 5_000.0
"""The question is sent all the same, and no other partition is nearly as good."""


@pytest_asyncio.fixture
async def edges(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Edge, Edge]]:
    server = fakeredis.FakeServer(version=(7,))
    monkeypatch.setattr(redis_client, "async_redis", lambda *_, **__: fakeredis.FakeAsyncRedis(server=server))
    monkeypatch.setattr(claim, "_RESTS_MS", 0)
    places = [Places(RedisSettings(timeout_ms=10_000)) for _ in range(2)]
    one, two = (
        Edge(FakeProducer(partitions=PARTITIONS), places=each, partition=number) for number, each in enumerate(places)
    )
    yield one, two
    for edge in (one, two):
        await edge.gateway.asking.sending.claims.close()
    for each in places:
        await each.close()


def slow_at(partition: int, *edges: Edge) -> None:
    """Have the worker of a partition report that it is late, and the others that they are idle."""
    for number in range(PARTITIONS):
        first_token_ms = LATE_MS if number == partition else 50.0
        reads = report(
            f"w{number}", unix_ms=int(now_unix_ms()), first_token_ms=first_token_ms, partitions=(number,), running=0
        )
        for edge in edges:
            edge.gateway.asking.answering.admission_gate.update_worker(reads.worker_id, reads)


async def ask(edge: Edge, event_id: str, client: FakeConnection | None = None) -> FakeConnection:
    if client is None:
        client = await edge.connect().say(SessionStart(session_id=SESSION.session_id))
    await client.say(ResponseCreate(event_id=event_id, input="hi"))
    await settled()
    return client


async def settled() -> None:
    for _ in range(20):
        await quiet()


def partitions(edge: Edge, topic: str = TOPICS.requests("short")) -> list[int | None]:
    return [record.partition for record in edge.producer.of(topic)]


def open_beside(edge: Edge) -> list[list[str]]:
    """Return, by question sent, the inputs of those that its record names as open when it was asked."""
    named = {response_id(SESSION, event_id, "hi"): event_id for event_id in "abcd"}
    records = edge.producer.of(TOPICS.requests("short"))
    return [sorted(named[each] for each in decode_request(record.value).concurrent) for record in records]


async def end(edge: Edge, event_id: str) -> None:
    edge.receive_replies([done("Hello.", response_id(SESSION, event_id, "hi"))])
    await settled()


async def test_a_first_question_goes_to_a_free_worker_and_the_next_follows_its_kv(
    edges: tuple[Edge, Edge],
) -> None:
    one, two = edges
    slow_at(HOME, one, two)
    await ask(one, "a")
    await end(one, "a")
    await ask(two, "b")
    await end(two, "b")
    assert partitions(one) == partitions(two) == [AWAY]
    slow_at(AWAY, one, two)
    await ask(two, "c")
    assert partitions(two)[-1] not in {AWAY, None}


async def test_a_question_lists_the_open_ones_of_any_gateway_and_no_ended_one(
    edges: tuple[Edge, Edge],
) -> None:
    one, two = edges
    slow_at(HOME, one, two)
    client = await ask(one, "a")
    await ask(one, "b", client)
    await ask(two, "c")
    assert (open_beside(one), open_beside(two)) == ([[], ["a"]], [["a", "b"]])
    await end(one, "a")
    await ask(two, "d")
    assert open_beside(two)[-1] == ["b", "c"]


def after(edge: Edge) -> list[str | None]:
    """Return, by question sent, the input of the answer that its record names as the last."""
    named = {response_id(SESSION, event_id, "hi"): event_id for event_id in "abcd"}
    records = edge.producer.of(TOPICS.requests("short"))
    return [None if (name := decode_request(each.value).after) is None else named[name] for each in records]


async def test_a_question_names_the_conversations_last_answer_while_its_turn_may_be_on_its_way(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = edges
    client = await ask(one, "a")
    await ask(one, "b", client)
    await end(one, "a")
    await ask(one, "c", client)
    assert after(one) == [None, None, "a"]
    monkeypatch.setattr(claim, "_WRITTEN_FOR_MS", 0.0)
    await ask(one, "d", client)
    assert after(one)[-1] is None, "an old turn is in the history, or lost"


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        ({}, "a"),
        ({"status": "incomplete", "reason": "max_output_tokens"}, "a"),
        ({"status": "incomplete", "reason": "deadline"}, None),
        ({"source": "busy"}, None),
    ],
    ids=lambda each: "-".join(each.values()) or "whole" if isinstance(each, dict) else str(each),
)
async def test_only_an_answer_whose_turn_is_written_at_its_end_is_named(
    edges: tuple[Edge, Edge], outcome: dict[str, Any], named: str | None
) -> None:
    one, _ = edges
    client = await ask(one, "a")
    one.receive_replies([done("Hello.", response_id(SESSION, "a", "hi"), **outcome)])
    await settled()
    await ask(one, "b", client)
    assert after(one)[-1] == named


async def test_no_answer_before_an_erasure_is_named(edges: tuple[Edge, Edge]) -> None:
    one, _ = edges
    client = await ask(one, "a")
    await end(one, "a")
    one.gateway.erasing.apply(Erase(tenant="demo", session_id="s", generation=int(now_unix_ms())), 1)
    await client.say(ResponseCreate(event_id="b", input="hi"))
    await settled()
    assert decode_request(one.producer.of(TOPICS.requests("short"))[-1].value).after is None


async def test_without_redis_a_question_lists_the_open_ones_of_its_gateway(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = edges

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    for edge in edges:
        monkeypatch.setattr(edge.places, "claim", away)
        monkeypatch.setattr(edge.places, "release", away)
    client = await ask(one, "a")
    await ask(one, "b", client)
    await end(one, "a")
    await ask(one, "c", client)
    await ask(two, "d")
    assert (open_beside(one), open_beside(two)) == ([[], ["a"], ["b"]], [[]])


@pytest.mark.parametrize("lacking", [(), (HOME,), tuple(range(PARTITIONS))], ids=["none", "its worker", "all"])
async def test_without_redis_a_worker_that_lacks_the_version_is_not_asked_while_another_has_it(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch, lacking: tuple[int, ...]
) -> None:
    """Every gateway chooses the same other partition."""

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    for number, edge in enumerate(edges):
        monkeypatch.setattr(edge.places, "claim", away)
        monkeypatch.setattr(edge.places, "release", away)
        edge.move(State(aliases={"champion": "new"}))
        for at in range(PARTITIONS):
            loaded = ("old",) if at in lacking else ("new",)
            reads = report(f"w{at}", unix_ms=int(now_unix_ms()), partitions=(at,), running=0, revisions=loaded)
            edge.gateway.asking.answering.admission_gate.update_worker(reads.worker_id, reads)
        await ask(edge, "ab"[number])
    one, two = (partitions(edge) for edge in edges)
    assert one == two
    assert (one == [HOME]) == (lacking != (HOME,))


async def test_an_end_is_known_immediately_even_if_redis_releases_the_question_late(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = edges

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(one.places, "release", away)
    client = await ask(one, "a")
    await end(one, "a")
    await ask(one, "b", client)
    assert open_beside(one) == [[], []]


@pytest.mark.parametrize("heard_s", [60.0, 0.0], ids=["the worker is still expected", "the worker is late"])
@pytest.mark.parametrize("ends", ["cancelled", "completed", None])
async def test_a_cancelled_question_is_open_until_its_worker_has_ended_it(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch, heard_s: float, ends: Any
) -> None:
    """The worker writes its turn: whether later prompts include it must not depend on when they are built."""
    monkeypatch.setattr(claim, "_CANCEL_HEARD_S", heard_s)
    one, two = edges
    client = await ask(one, "a")
    await client.say(ResponseCancel(target_event_id="a"))
    await settled()
    await ask(one, "b", client)
    await ask(two, "c")
    assert (open_beside(one)[-1], open_beside(two)[-1]) == (["a"], ["a", "b"])
    if ends is not None:
        one.receive_replies([done("Hello.", response_id(SESSION, "a", "hi"), status=ends)])
    await settled()
    await ask(two, "d")
    assert open_beside(two)[-1] == (["a", "b", "c"] if ends is None else ["b", "c"])


async def test_a_conversation_leaves_a_worker_that_does_not_end_a_cancelled_question(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_CANCEL_HEARD_S", 0.0)
    one, two = edges
    slow_at(HOME, one, two)
    client = await ask(one, "a")
    slow_at(AWAY, one, two)
    await client.say(ResponseCancel(target_event_id="a"))
    await settled()
    await ask(two, "b")
    assert partitions(one) == [AWAY]
    assert partitions(two)[-1] not in {AWAY, None}


async def test_a_cancelled_question_is_open_until_its_deadline_at_most(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = edges
    client = await ask(one, "a")
    await client.say(ResponseCancel(target_event_id="a"))
    await settled()
    monkeypatch.setattr(claim, "_CANCEL_HEARD_S", 0.0)
    one.serving.claims.leave_to_worker(SESSION, response_id(SESSION, "a", "hi"), deadline_unix_ms=0.0)
    await settled()
    await ask(one, "b", client)
    await ask(two, "c")
    assert (open_beside(one)[-1], open_beside(two)[-1]) == ([], ["b"])


@pytest.mark.parametrize("learns", ["by Redis", "by the log"])
async def test_a_question_erased_with_its_conversation_keeps_nothing_of_the_next_one(
    edges: tuple[Edge, Edge], learns: str
) -> None:
    """Its worker is still expected to end it, as a cancelled one."""
    one, two = edges
    slow_at(HOME, one, two)
    await ask(two, "a")
    erase = Erase(tenant=SESSION.tenant, session_id=SESSION.session_id, generation=int(now_unix_ms()) + 1)
    await one.places._redis.call(lambda redis: redis.flushall())  # an erasure deletes the place
    for edge in edges:
        edge.history.generations[SESSION] = erase.generation
    slow_at(AWAY, one, two)
    one.erased(erase)
    if learns == "by the log":
        two.erased(erase)
    await ask(one, "b")
    await ask(two, "c")
    assert partitions(one) == partitions(two)[-1:] != [AWAY]
    order = settle(ChatRequest(id="service", session_id="s", tenant="demo", input="hi"), DEFAULTS, now_unix_ms())
    assert [await two.serving.claims.follow(order, TOPICS.requests("short"))] == partitions(one)
    assert [len(decode_request(record.value).concurrent) for record in two.producer.of(TOPICS.requests("short"))] == [
        0,
        1,
    ]


async def test_a_question_goes_behind_an_open_one_of_any_gateway(edges: tuple[Edge, Edge]) -> None:
    one, two = edges
    slow_at(HOME, one, two)
    client = await ask(one, "a")
    slow_at(AWAY, one, two)
    await ask(two, "b")
    await ask(one, "c", client)
    assert partitions(one) == [AWAY, AWAY]
    assert partitions(two) == [AWAY]


async def test_a_cancel_and_an_adoption_follow_the_question(edges: tuple[Edge, Edge]) -> None:
    one, two = edges
    slow_at(HOME, one, two)
    client = await ask(one, "a")
    client.lose()
    returning = await two.connect().say(SessionStart(session_id="s", resume=Resume(cursor=client.cursor)))
    await settled()
    await returning.say(ResponseCancel(target_event_id="a"))
    await settled()
    notices = partitions(two, TOPICS.cancels)
    assert len(notices) >= 2
    assert set(notices) == {AWAY}


async def test_without_redis_the_hash_decides_except_for_questions_open_here(
    edges: tuple[Edge, Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = edges
    slow_at(HOME, one, two)
    client = await ask(one, "a")

    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    for edge in edges:
        monkeypatch.setattr(edge.places, "claim", away)
    await ask(one, "b", client)
    await ask(two, "c")
    assert partitions(one) == [AWAY, AWAY]
    assert partitions(two) == [HOME]


async def test_another_services_request_goes_to_its_home_partition_unless_a_customers_question_is_open(
    edges: tuple[Edge, Edge],
) -> None:
    one, two = edges
    slow_at(HOME, one, two)
    request = ChatRequest(id="service", session_id="s", tenant="demo", input="hi")
    order = settle(request, DEFAULTS, now_unix_ms())
    follow = two.serving.claims.follow
    assert await follow(order, TOPICS.requests("short")) == HOME
    await two.places.release(SESSION, "~service", now_unix_ms() - 1)
    await ask(one, "a")
    assert await follow(order, TOPICS.requests("short")) == AWAY


async def test_a_question_lists_no_service_request_whose_end_no_gateway_sees(edges: tuple[Edge, Edge]) -> None:
    one, two = edges
    order = settle(ChatRequest(id="service", session_id="s", tenant="demo", input="hi"), DEFAULTS, now_unix_ms())
    await two.serving.claims.follow(order, TOPICS.requests("short"))
    await ask(one, "a")
    assert (partitions(one), open_beside(one)) == ([HOME], [[]])


async def test_a_conversation_of_a_dead_gateway_may_move_after_the_deadline(edges: tuple[Edge, Edge]) -> None:
    places: Places = edges[0].places
    claimed = [
        await places.claim(SESSION, name, wanted, staying=(), now_unix_ms=now, until_unix_ms=now + 4_000)
        for name, wanted, now in (("a", 1, 1_000), ("b", 2, 4_999), ("c", 2, 8_998), ("d", 2, 12_998))
    ]
    assert [(at, how) for at, how, _ in claimed] == [(1, "new"), (1, "pinned"), (1, "pinned"), (2, "moved")]


async def test_an_erased_place_is_not_written_again(edges: tuple[Edge, Edge]) -> None:
    places: Places = edges[0].places
    await places.release(SESSION, "erased", now_unix_ms())
    assert await places.claim(SESSION, "a", 1, staying=None, now_unix_ms=0, until_unix_ms=1) == (1, "new", ())


async def test_a_question_refused_by_a_fault_no_longer_blocks_its_conversation(edges: tuple[Edge, Edge]) -> None:
    one, _ = edges
    slow_at(HOME, one)
    client = await ask(one, "a")
    [entry] = one.gateway.inflight.open_before(SESSION, 2**62)
    one.gateway.inflight.refuse(entry)
    await one.places.release(SESSION, entry.response_id, now_unix_ms() - 1)
    slow_at(AWAY, one)
    await ask(one, "b", client)
    assert partitions(one)[-1] not in {AWAY, None}
    assert open_beside(one) == [[], []]


async def test_only_the_first_question_of_a_conversation_finds_redis_without_it(edges: tuple[Edge, Edge]) -> None:
    """This holds at any gateway: a question that began elsewhere may have a warm cache, and is no evidence of a slow
    version."""
    one, two = edges
    moved = []
    for edge in (one, two, one):
        edge.move(State(aliases={"champion": "old", "canary": "new"}, rule=Rule(salt="a", share=1.0)))
        canary = report("w", lane="canary", revisions=("new",), unix_ms=int(now_unix_ms()))
        edge.serving.admission_gate.update_worker("w", canary)
        await ask(edge, "abc"[len(moved)])
        edge.receive_replies([done("Hello.", edge.asked[-1].id, revision="new", lane="canary")])
        await settled()
        moved.append(msgpack.decode(edge.producer.of(TOPICS.observations)[-1].value or b"", type=Observation).moved)
    assert moved == [False, None, False]
