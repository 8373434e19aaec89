"""The shadow lane gets a share of the questions that the champion answered, and nothing else."""

from typing import Any

import pytest
from msgspec import msgpack

from shared.errors import BrokerUnavailable
from shared.kafka import Outgoing
from shared.process.clock import now_unix_ms
from shared.versions.state import Rule, State
from shared.wire.messages import ChatRequest, ResponseCreate, SessionDelete, SessionStart
from shared.wire.outcome import Replaced, Timings, Usage
from shared.wire.session_key import SessionKey
from shared.wire.shadow import LiveAnswer
from tests.support.builders import wire
from tests.support.builders.gateway import report
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import TOPICS, Edge, quiet

SHADOWS = TOPICS.requests("short", "shadow")
ALL = State(aliases={"champion": "old", "shadow": "new"}, shadow_share=1.0, epoch=7)


def shadowed(edge: Edge, *, lane: Any = "shadow", versions: State = ALL) -> Edge:
    """With a worker of the lane."""
    edge.move(versions)
    edge.serving.admission_gate.update_worker(
        "w", report("w", lane=lane, revisions=("new",), unix_ms=int(now_unix_ms()))
    )
    return edge


async def answered(edge: Edge, session: str = "s", **end: Any) -> ChatRequest:
    """A customer asks and is answered; returns the request that the champion had."""
    connection = await edge.connect().say(SessionStart(session_id=session))
    await connection.say(ResponseCreate(event_id="e", input="How long?", temperature=0.5, metadata={"page": "/cart"}))
    await quiet()
    asked = edge.asked[-1]
    fields = {"usage": Usage(output_tokens=2), "revision": "old"} | end
    edge.receive_replies([wire.done("Two weeks.", asked.id, session_id=session, **fields)])
    await quiet()
    return asked


def of_the_lane(producer: FakeProducer) -> list[ChatRequest]:
    return [msgpack.decode(record.value or b"", type=ChatRequest) for record in producer.of(SHADOWS)]


async def test_a_shadow_gets_the_champions_question_and_its_answer() -> None:
    edge = shadowed(Edge())
    asked = await answered(edge, replaced=(Replaced(offset=0, length=3),), timings=Timings(queue_ms=1.0))
    [request] = of_the_lane(edge.producer)
    assert (request.id, request.revision, request.epoch) == (f"{asked.id}.shadow", "new", 7)
    same = ("session_id", "tenant", "input", "temperature", "created_unix_ms", "generation", "turns")
    assert [getattr(request, name) for name in same] == [getattr(asked, name) for name in same]
    assert (request.metadata, request.consent, request.traceparent) == ({}, None, None)
    assert request.seed is not None, "with its own id another sample would be drawn"
    assert request.answered is not None
    assert request.answered.ttft_ms is None or request.answered.total_ms is not None
    assert request.answered == LiveAnswer(
        request_id=asked.id,
        revision="old",
        output_text="Two weeks.",
        output_tokens=2,
        replaced=1,
        ttft_ms=request.answered.ttft_ms,
        total_ms=request.answered.total_ms,
    )
    assert 9_000 < (request.deadline_unix_ms or 0) - now_unix_ms() < 11_000
    assert edge.serving.shadowing.open == {}


@pytest.mark.parametrize(
    "end",
    [
        {"source": "faq"},
        {"status": "incomplete", "reason": "deadline"},
        {"status": "failed", "reason": "internal"},
        {"lane": "canary"},
    ],
)
async def test_answers_that_the_champions_model_did_not_give_whole_are_not_shadowed(end: dict[str, Any]) -> None:
    edge = shadowed(Edge())
    await answered(edge, **end)
    assert of_the_lane(edge.producer) == []
    assert edge.serving.shadowing.open == {}


async def test_an_erased_conversation_is_not_shadowed() -> None:
    edge = shadowed(Edge())
    connection = await edge.connect().say(SessionStart(session_id="s"), ResponseCreate(event_id="e", input="How long?"))
    await quiet()
    await connection.say(SessionDelete())
    edge.receive_replies([wire.done("Two weeks.", edge.asked[-1].id, session_id="s")])
    await quiet()
    assert of_the_lane(edge.producer) == []


@pytest.mark.parametrize("why", ["no worker", "no version", "memory", "kafka", "breaker", "ladder"])
async def test_nothing_is_shadowed_without_a_worker_or_under_load(why: str) -> None:
    edge = shadowed(Edge(), lane="canary" if why == "no worker" else "shadow")
    if why == "no version":
        edge.move(State(aliases={"champion": "old"}))
    asked = await edge.connect().say(SessionStart(session_id="s"), ResponseCreate(event_id="e", input="How long?"))
    await quiet()
    if why == "memory":
        edge.serving.admission_gate.memory.sheds = True
    if why == "breaker":
        breaker = edge.serving.admission_gate.admissions.of("champion").breaker
        for _ in range(100):
            breaker.measured(took_ms=9_000, threshold_ms=1, probe=None, now_unix_ms=now_unix_ms())
    if why == "ladder":
        edge.serving.admission_gate.ladder.level = "light"
    edge.kafka_is_away = why == "kafka"
    edge.receive_replies([wire.done("Two weeks.", edge.asked[-1].id, session_id="s")])
    await quiet()
    assert of_the_lane(edge.producer) == []
    assert len(asked.ends) == 1


async def test_the_share_has_its_own_salt() -> None:
    edge = shadowed(Edge(), versions=State(aliases={"shadow": "new"}, shadow_share=0.5))
    for number in range(40):
        await answered(edge, f"s{number}")
    rule = Rule(salt="shadow", share=0.5)
    of_the_share = [f"s{n}" for n in range(40) if rule.point(SessionKey("demo", f"s{n}")) < rule.share]
    assert [request.session_id for request in of_the_lane(edge.producer)] == of_the_share
    assert 5 < len(of_the_share) < 35


class FailingProducer(FakeProducer):
    async def enqueue(self, record: Outgoing) -> Any:
        if record.topic == SHADOWS:
            raise BrokerUnavailable("away")
        return await super().enqueue(record)


async def test_a_shadow_question_that_kafka_refuses_costs_its_customer_nothing() -> None:
    edge = shadowed(Edge(producer=FailingProducer()))
    await answered(edge)
    assert (of_the_lane(edge.producer), len(edge.serving.shadowing.sending)) == ([], 0)
