"""A request given up by the champion's workers goes down the ladder if none of its answer was shown."""

from typing import Any

from shared.errors import BrokerUnavailable
from shared.kafka import Outgoing
from shared.process.clock import now_unix_ms
from shared.versions.state import State
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import ResponseCreate, SessionStart
from shared.wire.outcome import Response
from tests.support.builders import wire
from tests.support.builders.gateway import report
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import TOPICS, Edge, FakeConnection, quiet

GIVEN_UP: dict[str, Any] = {"status": "incomplete", "reason": "infeasible", "session_id": "s"}
LIGHT: dict[str, Any] = {"session_id": "s", "attempt": 1, "revision": "small", "lane": "light"}


def laddered(*lanes: Lane, **given: Any) -> Edge:
    """With a worker in each lane."""
    edge = Edge(**given)
    edge.move(State(aliases={CHAMPION: "large", "light": "small"}))
    for lane in (CHAMPION, *lanes):
        edge.serving.admission_gate.update_worker(
            lane, report(lane, lane=lane, revisions=("small",), unix_ms=int(now_unix_ms()))
        )
    return edge


async def given_up(edge: Edge) -> FakeConnection:
    """Return a client whose question the champion's worker gives up."""
    connection = await edge.connect().say(SessionStart(session_id="s"))
    await connection.say(ResponseCreate(event_id="e", input="How long?", seed=7))
    await quiet()
    edge.receive_replies([wire.done("", edge.asked[0].id, **GIVEN_UP)])
    await quiet()
    return connection


def last(connection: FakeConnection) -> Response:
    [response] = connection.ends
    return response


async def test_the_light_model_gets_the_same_question_with_its_own_version_and_its_answer_is_shown() -> None:
    edge = laddered("light")
    connection = await given_up(edge)
    first, second = edge.asked
    assert [len(edge.producer.of(TOPICS.requests("short", lane))) for lane in (CHAMPION, "light")] == [1, 1]
    assert (first.revision, second.revision) == ("large", "small")
    same = ("id", "session_id", "input", "seed", "created_unix_ms", "deadline_unix_ms", "first_token_unix_ms")
    assert [getattr(first, name) for name in same] == [getattr(second, name) for name in same]
    edge.receive_replies([wire.done("Two weeks.", first.id, **LIGHT)])
    end = last(connection)
    assert (end.output_text, end.lane, end.revision, end.source) == ("Two weeks.", "light", "small", "model")
    assert edge.serving.admission_gate.admissions.of("light").inflight == 0
    assert edge.serving.admission_gate.admissions.of(CHAMPION).inflight == 0


async def test_each_rung_is_asked_once_and_then_the_faq_answers() -> None:
    edge = laddered("light", "cpu")
    connection = await given_up(edge)
    for number in (1, 2):
        assert not connection.ends
        edge.receive_replies([wire.done("", edge.asked[0].id, **(GIVEN_UP | {"attempt": number}))])
        await quiet()
    assert [len(edge.producer.of(TOPICS.requests("short", lane))) for lane in (CHAMPION, "light", "cpu")] == [1, 1, 1]
    assert last(connection).source in {"faq", "busy"}


async def test_a_held_ladder_has_no_rung_below() -> None:
    edge = laddered("light")
    edge.move(State(rung=CHAMPION))
    assert last(await given_up(edge)).source in {"faq", "busy"}


async def test_shown_text_stays_the_champions() -> None:
    edge = laddered("light")
    connection = await edge.connect().say(SessionStart(session_id="s"))
    await connection.say(ResponseCreate(event_id="e", input="How long?"))
    await quiet()
    name = edge.asked[0].id
    edge.receive_replies([wire.delta("Two", 0, request_id=name, session_id="s")])
    edge.receive_replies([wire.done("Two", name, **GIVEN_UP)])
    await quiet()
    assert (last(connection).output_text, len(edge.asked)) == ("Two", 1)


class OnceProducer(FakeProducer):
    """Kafka, which is gone after the first request."""

    async def enqueue(self, record: Outgoing) -> Any:
        if record.topic == TOPICS.requests("short", "light"):
            raise BrokerUnavailable("gone")
        return await super().enqueue(record)


async def test_the_faq_answers_if_kafka_refuses_the_second_request() -> None:
    edge = laddered("light", producer=OnceProducer())
    connection = await given_up(edge)
    assert last(connection).source in {"faq", "busy"}
    assert edge.serving.admission_gate.admissions.of("light").inflight == 0


async def test_a_champion_that_gives_up_most_brings_the_level_down() -> None:
    edge = laddered("light")
    ladder = edge.serving.admission_gate.ladder
    connection = await edge.connect().say(SessionStart(session_id="s"))
    for number in range(4):
        await connection.say(ResponseCreate(event_id=f"e{number}", input="How long?"))
        await quiet()
        edge.receive_replies([wire.done("", edge.asked[-1].id, **GIVEN_UP)])
        await quiet()
    assert (ladder._own.asked, ladder._own.had_place) == (4, 0)
