"""A person answers in the chat: nothing of the model follows, and nothing is lost or doubled, at any gateway."""

import asyncio
from typing import Any

import pytest

from gateway.people.talks import Talk
from gateway.serving import talking
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.wire.messages import (
    Erase,
    ErrorEvent,
    HandoffRequest,
    PeopleMove,
    PersonMessage,
    PersonState,
    ResponseCreate,
    ResponseDelta,
    Resume,
    SessionCreated,
    SessionDelete,
    SessionStart,
)
from shared.wire.session_key import SessionKey
from shared.wire.topics import PEOPLE_MS
from tests.support.fakes.gateways import Edge, FakeConnection, delta, done, quiet
from tests.support.fakes.people_log import PeopleTopic

SESSION = SessionKey("demo", "s")
QUESTION = "How do I return an item?"


@pytest.fixture
def topic() -> PeopleTopic:
    return PeopleTopic()


async def customer(edge: Edge, talk: int | None = 0, **fields: Any) -> FakeConnection:
    client = await edge.connect().say(SessionStart(session_id="s", talk=talk, **fields))
    await quiet()
    return client


async def taken(edge: Edge, agent: str = "anna") -> Talk:
    """Have a person take the conversation, which waits."""
    talks = edge.serving.talking.log.talks
    if talks.find(SESSION) is None:
        edge.producer.topic.write(PeopleMove(tenant="demo", session_id="s", epoch=1, to="waiting"))  # type: ignore[attr-defined]
    return await moved(edge, "taken", agent)


async def moved(edge: Edge, to: Any, agent: str = "anna", epoch: int | None = None) -> Talk:
    talk = edge.serving.talking.log.talks.find(SESSION)
    assert talk is not None
    done = await edge.serving.talking.move(talk, to, epoch=epoch, agent=agent, name=agent.title())
    await quiet()
    return done


async def says(edge: Edge, message_id: str, agent: str = "anna") -> int:
    number = await edge.serving.talking.say(SESSION, message_id, agent, f"text of {message_id}")
    await quiet()
    return number


def asks(event_id: str) -> ResponseCreate:
    return ResponseCreate(event_id=event_id, input=f"{QUESTION} {event_id}")


def heard(client: FakeConnection) -> list[str]:
    """What the client was sent of and about a person."""
    return [
        message.text if isinstance(message, PersonMessage) else message.state
        for message in client.heard
        if isinstance(message, PersonMessage | PersonState)
    ]


def bot_words_after_taken(client: FakeConnection) -> list[object]:
    at = [isinstance(message, PersonState) and message.state == "taken" for message in client.heard].index(True)
    return [message for message in client.heard[at:] if isinstance(message, ResponseDelta)]


async def test_a_customer_who_asks_for_a_person_waits_and_the_model_goes_on(topic: PeopleTopic) -> None:
    edge = topic.gateway(people=True, reached=True)
    client = await customer(edge)
    await client.say(HandoffRequest(event_id="h", language="zh"))
    await quiet()
    assert [(move.to, move.reason, move.language) for move in topic.moves()] == [("waiting", "requested", "zh")]
    assert heard(client) == ["waiting"]
    await client.say(asks("e"))
    await quiet()
    assert len(edge.asked) == 1


async def test_a_client_that_shows_no_persons_messages_is_not_offered(topic: PeopleTopic) -> None:
    edge = topic.gateway(people=True, reached=True)
    client = await customer(edge, talk=None)
    await client.say(HandoffRequest(event_id="h"))
    await quiet()
    assert (topic.records, heard(client)) == ([], [])


async def test_a_hand_off_whose_gateway_died_before_it_wrote_is_offered_when_its_client_returns(
    topic: PeopleTopic,
) -> None:
    edge = topic.gateway(people=True, reached=True)
    topic.away = True
    client = await customer(edge)
    await client.say(HandoffRequest(event_id="h"))
    await quiet()
    assert topic.records == []
    topic.away = False
    client.lose()
    again = await customer(edge)
    assert ([move.to for move in topic.moves()], heard(again)) == (["waiting"], ["waiting"])


async def test_a_take_in_mid_answer_ends_it_and_no_word_of_the_model_follows(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await client.say(asks("e"))
    await quiet()
    [asked] = edge.asked
    edge.receive_replies([delta(asked.id, "You can ")])
    await taken(desk)
    edge.receive_replies([delta(asked.id, "return it", 8), done(asked.id, "You can return it")])
    await quiet()
    [end] = client.ends
    assert (end.status, end.reason, end.output_text) == ("cancelled", "person", "You can ")
    assert bot_words_after_taken(client) == []
    assert edge.cancelled == [asked.id]
    assert [said.text for said in topic.said()] == [asked.input], "the person gets the question"


async def test_a_question_while_taken_goes_to_the_person_and_has_one_end_without_text(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    await client.say(asks("a"), asks("b"))
    await quiet()
    assert edge.asked == []
    assert [(end.status, end.source, end.output_text) for end in client.ends] == [("completed", "handoff", "")] * 2
    assert [said.text for said in topic.said()] == [asks("a").input, asks("b").input]
    assert bot_words_after_taken(client) == []
    assert edge.history.remembered == []


async def test_no_deadline_answers_a_question_that_a_person_has(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    topic.held.add(0)
    await client.say(ResponseCreate(event_id="e", input=QUESTION, first_token_ms=1, deadline_ms=2))
    await asyncio.sleep(0.05)
    topic.held.clear()
    topic.read(edge)
    await quiet()
    assert [(end.source, end.output_text) for end in client.ends] == [("handoff", "")]


async def test_a_question_that_crosses_the_hand_back_is_answered_by_the_model(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    topic.held.add(0)
    await moved(desk, "bot")
    await client.say(asks("e"))
    await quiet()
    assert edge.asked == []
    topic.held.clear()
    topic.read(edge)
    await quiet()
    assert [asked.input for asked in edge.asked] == [asks("e").input]


async def test_without_kafka_a_question_to_a_person_is_refused_and_nothing_is_half_said(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    topic.away = True
    await client.say(asks("e"))
    await quiet()
    assert [message.error.code for message in client.heard if isinstance(message, ErrorEvent)] == ["people_unavailable"]
    with pytest.raises(ProtocolError, match="send it again with the same id"):
        await says(desk, "m")
    topic.away = False
    await client.say(asks("e"))
    await quiet()
    await says(desk, "m")
    assert [said.text for said in topic.said()] == [asks("e").input, "text of m"]


async def test_two_people_take_at_once_and_the_loser_learns_who_has_it(topic: PeopleTopic) -> None:
    one, two = topic.gateway(), topic.gateway()
    client = await customer(one)
    topic.write(PeopleMove(tenant="demo", session_id="s", epoch=1, to="waiting"))
    results = await asyncio.gather(moved(one, "taken", "anna"), moved(two, "taken", "bert"), return_exceptions=True)
    [lost] = [each for each in results if isinstance(each, ProtocolError)]
    [won] = [each for each in results if isinstance(each, Talk)]
    assert lost.code == "lost_race"
    assert f"{won.agent.title()} has it" in str(lost)
    assert heard(client) == ["waiting", "taken"]
    for edge in (one, two):
        assert edge.serving.talking.log.talks.taken[SESSION].agent == won.agent


async def test_the_same_person_may_take_again(topic: PeopleTopic) -> None:
    edge = topic.gateway()
    assert (await taken(edge)).epoch == (await taken(edge)).epoch == 2


async def test_only_the_person_who_has_the_conversation_writes_and_gives_it_back(topic: PeopleTopic) -> None:
    edge = topic.gateway()
    await taken(edge)
    with pytest.raises(ProtocolError, match="Anna has this conversation"):
        await says(edge, "m", "bert")
    with pytest.raises(ProtocolError, match="Anna has this conversation"):
        await moved(edge, "bot", "bert")
    await moved(edge, "taken", "bert")
    with pytest.raises(ProtocolError, match="Bert has this conversation"):
        await says(edge, "m")
    await says(edge, "m", "bert")
    await moved(edge, "resolved", "bert")
    with pytest.raises(ProtocolError, match="nobody has this conversation"):
        await says(edge, "n", "bert")


async def test_a_persons_message_sent_twice_is_shown_once(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    assert await says(desk, "m") == await says(edge, "m")
    topic.write(topic.said()[0])
    await quiet()
    assert heard(client) == ["waiting", "taken", "text of m"]


@pytest.mark.parametrize("reads_first", [True, False])
async def test_after_a_kill_a_client_gets_at_another_gateway_what_it_lacks(
    topic: PeopleTopic, reads_first: bool
) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    has = await says(desk, "a")
    client.lose()
    edge.serving.gateway.disconnect(client)
    if reads_first:
        await says(desk, "b")
    other = topic.gateway()
    again = await customer(other, talk=has)
    if not reads_first:
        await says(desk, "b")
    await says(desk, "c")
    expected = ["text of b", "taken", "text of c"] if reads_first else ["taken", "text of b", "text of c"]
    assert (heard(client), heard(again)) == (["waiting", "taken", "text of a"], expected)
    numbers = [message.n for message in again.heard if isinstance(message, PersonMessage)]
    assert numbers == sorted({*numbers})


async def test_an_answer_of_a_dead_gateway_is_not_continued_in_a_conversation_that_a_person_has(
    topic: PeopleTopic,
) -> None:
    edge, other = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await client.say(asks("e"))
    await quiet()
    [asked] = edge.asked
    edge.receive_replies([delta(asked.id, "You can ")])
    other.follower.stands = [delta(asked.id, "You can return it"), done(asked.id, "You can return it")]
    topic.held.add(0)  # it dies before it reads of the taking
    await taken(other)
    again = await other.connect().say(SessionStart(session_id="s", talk=0, resume=Resume(cursor=client.cursor)))
    await quiet()
    assert [(end.status, end.reason, end.output_text) for end in again.ends] == [("cancelled", "person", "")]
    assert [message for message in again.heard if isinstance(message, ResponseDelta)] == []
    assert heard(again) == ["taken"]


async def test_a_client_of_a_log_before_this_one_gets_all_messages(topic: PeopleTopic) -> None:
    edge = topic.gateway()
    await taken(edge)
    await says(edge, "a")
    assert heard(await customer(edge, talk=4_711)) == ["text of a", "taken"]


async def test_handed_back_words_are_one_turn_although_every_gateway_writes_it(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    desk.serving.talking.history = edge.history  # type: ignore[assignment]
    client = await customer(edge)
    await taken(desk)
    await client.say(asks("q"))
    await quiet()
    await says(desk, "m")
    await moved(desk, "bot")
    third = topic.gateway()
    third.serving.talking.history = edge.history  # type: ignore[assignment]
    await quiet()
    [turn] = edge.history.remembered
    assert (turn.user, turn.output_text, turn.source) == (asks("q").input, "text of m", "handoff")
    assert heard(client) == ["waiting", "taken", "text of m", "bot"]
    await client.say(asks("next"))
    await quiet()
    [asked] = edge.asked
    assert asked.after == turn.request_id, "the worker waits for that turn"


async def test_an_erasure_removes_the_words_and_the_conversation_cannot_be_taken(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(desk)
    await says(desk, "m")
    await client.say(SessionDelete())
    await quiet()
    [erase] = edge.told_all
    assert [each for each in topic.decoded() if isinstance(each, Erase)] == [erase]
    for gateway in (edge, desk, topic.gateway()):
        talks = gateway.serving.talking.log.talks
        assert (talks.find(SESSION), talks.taken) == (None, {})
        assert "text of m" not in repr(talks._talks)
    with pytest.raises(ProtocolError, match="or it was erased"):
        await says(desk, "n")
    await client.say(asks("e"))
    await quiet()
    assert len(edge.asked) == 1, "the model answers"


async def test_an_erasure_learned_from_redis_removes_the_words_at_this_gateway(topic: PeopleTopic) -> None:
    edge = topic.gateway()
    await taken(edge)
    await says(edge, "m")
    edge.history.generations[SESSION] = 7
    await edge.serving.erasing.generation_of(SESSION, now_unix_ms())
    assert edge.serving.talking.log.talks.find(SESSION) is None


async def test_a_gateway_that_has_just_started_tells_a_returning_client_nothing_before_it_has_read(
    topic: PeopleTopic,
) -> None:
    first = topic.gateway()
    await taken(first)
    edge = Edge()
    edge.serving.talking.log.loaded.clear()
    client = edge.connect()
    opening = asyncio.create_task(client.say(SessionStart(session_id="s", talk=0)))
    await quiet()
    assert client.heard == []
    topic.read(edge)
    edge.serving.talking.load()
    await opening
    assert isinstance(client.heard[0], SessionCreated)
    assert heard(client) == ["taken"]


@pytest.mark.parametrize("handed_back", [False, True])
async def test_of_what_was_moved_before_a_gateway_started_the_last_state_counts(
    topic: PeopleTopic, handed_back: bool
) -> None:
    """It serves clients before it has read the log; an answer of a conversation that was given back continues."""
    first, edge = topic.gateway(), Edge()
    await taken(first)
    await says(first, "m")
    if handed_back:
        await moved(first, "bot")
    client = await customer(edge)
    edge.serving.talking.log.loaded.clear()
    await client.say(asks("e"))
    await quiet()
    topic.read(edge)
    await quiet()
    assert (client.ends, heard(client)) == ([], [])
    edge.serving.talking.load()
    await quiet()
    ends = [] if handed_back else [("cancelled", "person")]
    assert [(end.status, end.reason) for end in client.ends] == ends
    assert heard(client) == ["text of m", "bot" if handed_back else "taken"]


async def test_a_person_who_leaves_a_customer_without_a_reply_loses_the_conversation(topic: PeopleTopic) -> None:
    edge = topic.gateway()
    talk = await taken(edge)
    since = talk.since_unix_ms
    assert talk.is_unanswered_since(since)
    await says(edge, "m")
    assert not talk.is_unanswered_since(since + 10_000), "the customer has not asked since"
    client = await customer(edge)
    await client.say(asks("e"))
    await quiet()
    assert talk.is_unanswered_since(talk.said[-1].unix_ms)
    assert not talk.is_unanswered_since(talk.said[-1].unix_ms - 1)


async def test_what_a_client_was_sent_before_the_log_was_read_is_not_sent_again(topic: PeopleTopic) -> None:
    first, edge = topic.gateway(), Edge()
    await taken(first)
    await says(first, "m")
    topic.read(edge)
    client = await customer(edge)
    edge.serving.talking.log.loaded.clear()
    edge.serving.talking.load()
    await quiet()
    assert heard(client) == ["text of m", "taken", "taken"]


async def test_a_gateway_that_reads_later_than_the_last_one_sends_nothing_again(topic: PeopleTopic) -> None:
    edge, other = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await taken(edge)
    await says(edge, "a")
    topic.held.add(1)
    has = await says(edge, "b")
    client.lose()
    again = other.connect()
    opening = asyncio.create_task(again.say(SessionStart(session_id="s", talk=has)))
    await quiet()
    assert not opening.done()
    topic.held.clear()
    topic.read(other)
    await opening
    assert heard(again) == ["taken"]


async def test_a_question_cut_by_the_taking_reaches_the_person_although_kafka_is_away_then(
    topic: PeopleTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talking, "_AGAIN_S", 0.0)
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await client.say(asks("e"))
    await quiet()
    topic.held.add(0)
    await taken(desk)
    topic.held.clear()
    topic.away = True
    topic.read(edge)
    for _ in range(3):
        await asyncio.sleep(0)
    assert ([end.reason for end in client.ends], topic.said()) == (["person"], [])
    topic.away = False
    await quiet()
    assert [said.text for said in topic.said()] == [asks("e").input]


async def test_a_question_whose_gateway_died_in_mid_answer_reaches_the_person(topic: PeopleTopic) -> None:
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await client.say(asks("e"))
    await quiet()
    [asked] = edge.asked
    edge.receive_replies([delta(asked.id, "You can ")])
    await quiet()
    topic.held.add(0)
    client.lose()
    await taken(desk)
    other = topic.gateway()
    other.questions.stands = asked.input
    again = await customer(other, resume=Resume(cursor=client.cursor))
    assert [end.reason for end in again.ends] == ["person"]
    assert [(said.message_id, said.text) for said in topic.said()] == [(asked.id, asked.input)]


@pytest.mark.parametrize("of_customer", [True, False])
async def test_a_message_with_the_id_of_another_is_refused_and_not_taken_for_it(
    topic: PeopleTopic, of_customer: bool
) -> None:
    edge = topic.gateway()
    client = await customer(edge)
    await taken(edge)
    await client.say(asks("e"))
    await says(edge, "m")
    used = topic.said()[0].message_id if of_customer else "m"
    with pytest.raises(ProtocolError, match="another message has the id"):
        await edge.serving.talking.say(SESSION, used, "anna", "another text")


async def watched(edge: Edge, monkeypatch: pytest.MonkeyPatch, unix_ms: int, ahead_ms: float = 0.0) -> None:
    """Let a gateway look after its conversations at that time."""
    monkeypatch.setattr(talking, "_LOOK_S", 0.0)
    monkeypatch.setattr(talking, "wire_unix_ms", lambda: unix_ms)
    edge.serving.talking._ahead_ms = ahead_ms
    watching = asyncio.create_task(edge.serving.talking.watch())
    await quiet()
    watching.cancel()


@pytest.mark.parametrize(("held_ms", "state"), [(PEOPLE_MS // 2 - 1, "taken"), (PEOPLE_MS // 2, "waiting")])
async def test_no_person_has_a_conversation_for_so_long_that_the_log_forgets_the_taking(
    topic: PeopleTopic, monkeypatch: pytest.MonkeyPatch, held_ms: int, state: str
) -> None:
    edge = topic.gateway()
    talk = await taken(edge)
    await says(edge, "m")
    await watched(edge, monkeypatch, talk.since_unix_ms + held_ms)
    assert talk.state == state


@pytest.mark.parametrize(("silent_ms", "state"), [(599_000, "taken"), (600_000, "waiting")])
@pytest.mark.parametrize("ahead_ms", [-660_000, 0, 660_000])
async def test_a_gateway_whose_clock_is_wrong_takes_no_conversation_early_or_late(
    topic: PeopleTopic, monkeypatch: pytest.MonkeyPatch, ahead_ms: int, silent_ms: int, state: str
) -> None:
    edge = topic.gateway()
    monkeypatch.setattr(talking, "wire_unix_ms", lambda: topic.records[-1].arrived_unix_ms + ahead_ms)
    talk = await taken(edge)
    measured = edge.serving.talking._ahead_ms
    assert measured == ahead_ms
    await watched(edge, monkeypatch, talk.since_unix_ms + ahead_ms + silent_ms, measured)
    assert talk.state == state


async def test_words_are_forgotten_after_a_day_although_nobody_writes(
    topic: PeopleTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = topic.gateway()
    await taken(edge)
    await says(edge, "m")
    talk = await moved(edge, "bot")
    await watched(edge, monkeypatch, talk.since_unix_ms + PEOPLE_MS)
    assert "text of m" not in repr(edge.serving.talking.log.talks._talks)


async def test_a_gateway_that_still_reads_the_log_takes_no_conversation_from_a_person(
    topic: PeopleTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = topic.gateway()
    talk = await taken(edge)
    edge.serving.talking.log.loaded.clear()
    await watched(edge, monkeypatch, talk.since_unix_ms + 3_600_000)
    assert [move.to for move in topic.moves()] == ["waiting", "taken"]


@pytest.mark.parametrize("order", range(24))
async def test_whichever_gateway_reads_first_no_word_follows_the_taking(topic: PeopleTopic, order: int) -> None:
    """Takes, replies, a question and the end in every order, at the client's gateway."""
    edge, desk = topic.gateway(), topic.gateway()
    client = await customer(edge)
    await client.say(asks("e"))
    await quiet()
    [asked] = edge.asked
    topic.held.add(0)
    await taken(desk)
    steps = {
        0: lambda: topic.read(edge),
        1: lambda: edge.receive_replies([delta(asked.id, "You can ")]),
        2: lambda: client.say(asks("f")),
        3: lambda: edge.receive_replies([done(asked.id, "You can return it")]),
    }
    left = list(steps)
    for size in (4, 3, 2, 1):
        number, order = order % size, order // size
        step = steps[left.pop(number)]()
        if step is not None:
            await step
        await quiet()
    topic.held.clear()
    topic.read(edge)
    for later in edge.asked:
        edge.receive_replies([delta(later.id, "late"), done(later.id, "late")])
    await quiet()
    assert bot_words_after_taken(client) == []
    assert len(client.ends) == 2
    assert len({end.id for end in client.ends}) == 2
