"""A question that a lane's workers gave up is sent a second time, but never behind a later one of its conversation."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from shared.conversation.places import Claimed
from shared.process.clock import now_unix_ms
from shared.versions.state import Rule, State
from shared.wire.codec import decode_request
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import ResponseCreate, SessionStart
from shared.wire.session_key import SessionKey
from tests.support.builders import wire
from tests.support.builders.gateway import report
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import TOPICS, Edge, FakeConnection, quiet

VERSIONS: Final[dict[Any, str]] = {CHAMPION: "large", "light": "small", "canary": "new"}
LADDER: Final = State(aliases=VERSIONS)
CANARY: Final = State(aliases=VERSIONS, rule=Rule(salt="a", share=1.0))
CONTROL: Final = State(
    aliases=VERSIONS,
    rule=next(
        rule
        for number in range(100)
        if (rule := Rule(salt=str(number), share=0.5, control=True)).lane(SessionKey("demo", "s")) == "control"
    ),
)
LATE: Final = {"status": "incomplete", "reason": "infeasible"}
OWN: Final[dict[Lane, str]] = {CHAMPION: "large", "light": "small", "cpu": "", "canary": "new", "control": "large"}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a question is sent a second time.

    Attributes:
        lanes: the lanes with a worker: the first has the question and gives it up, the second gets it then
        before: the registry's state when it is asked
        after: the state when it is given up
        end: fields of the end by which the workers give it up
    """

    lanes: tuple[Lane, Lane]
    before: State = LADDER
    after: State | None = None
    end: dict[str, Any] = field(default_factory=dict)


CAUSES: Final = {
    "a late champion, for the light model": Cause(lanes=(CHAMPION, "light")),
    "a late light model, for the CPU model": Cause(lanes=("light", "cpu")),
    "a dead worker, whose successor is late": Cause(lanes=(CHAMPION, "light"), end={"attempt": 2}),
    "a late canary": Cause(lanes=("canary", CHAMPION), before=CANARY),
    "a dead canary, whose successor is late": Cause(lanes=("canary", CHAMPION), before=CANARY, end={"attempt": 2}),
    "a canary that is rolled back": Cause(lanes=("canary", CHAMPION), before=CANARY, after=LADDER),
    "a late control": Cause(lanes=("control", CHAMPION), before=CONTROL),
}


@dataclass
class SlowPlaces:
    """Claims in Redis, which answers while `there` is set."""

    there: asyncio.Event

    async def claim(self, _session: SessionKey, _request_id: str, wanted: int, **_: Any) -> Claimed:
        await self.there.wait()
        return Claimed(wanted, "kept")

    async def release(self, *_: Any) -> None:
        pass


@dataclass
class Asked:
    """A gateway with a client whose first question a lane's workers have."""

    cause: Cause
    redis: asyncio.Event = field(default_factory=asyncio.Event)
    edge: Edge = field(init=False)
    client: FakeConnection = field(init=False)

    async def ask_first(self) -> None:
        self.redis.set()
        self.edge = Edge(FakeProducer(partitions=1), places=SlowPlaces(self.redis))
        self.edge.move(self.cause.before)
        for lane in self.cause.lanes:
            loaded = report(lane, lane=lane, revisions=(OWN[lane],), unix_ms=int(now_unix_ms()))
            self.edge.serving.admission_gate.update_worker(lane, loaded)
        if self.cause.lanes[0] in ("canary", "control"):  # they serve every bucket that the champion serves
            assert self.edge.registry.state.lane(SessionKey("demo", "s")) == self.cause.lanes[0]
        self.client = await self.ask("s", "first")
        assert [record.topic for record in self.sent] == [TOPICS.requests("short", self.cause.lanes[0])]

    async def ask(self, session: str, event_id: str) -> FakeConnection:
        client = await self.edge.connect().say(
            SessionStart(session_id=session), ResponseCreate(event_id=event_id, input=f"How long {event_id}?")
        )
        await quiet()
        return client

    def give_up_first(self) -> None:
        if self.cause.after is not None:
            self.edge.move(self.cause.after)
        end = LATE | self.cause.end
        self.edge.receive_replies([wire.done("", self.edge.asked[0].id, session_id="s", **end)])

    @property
    def sent(self) -> list[Any]:
        return [record for record in self.edge.producer.published if record.topic.startswith("chat.requests")]

    @property
    def asked(self) -> list[str]:
        """Return the questions in Kafka, in their order."""
        return [decode_request(record.value).input.split()[-1].rstrip("?") for record in self.sent]


@pytest.fixture(params=CAUSES)
async def asked(request: pytest.FixtureRequest) -> Asked:
    asked = Asked(CAUSES[request.param])
    await asked.ask_first()
    return asked


async def test_it_is_sent_a_second_time_if_it_is_the_last_one(asked: Asked) -> None:
    asked.give_up_first()
    await quiet()
    assert [record.topic for record in asked.sent] == [TOPICS.requests("short", lane) for lane in asked.cause.lanes]
    assert asked.client.ends == []


async def test_a_later_question_of_another_conversation_does_not_matter(asked: Asked) -> None:
    await asked.ask("another", "other")
    asked.give_up_first()
    await quiet()
    assert asked.asked == ["first", "other", "first"]


async def test_a_later_question_that_was_not_sent_does_not_matter(asked: Asked) -> None:
    state = asked.edge.registry.state
    asked.edge.move(State(rung="faq"))
    await asked.ask("s", "later")
    asked.edge.move(State(aliases=state.aliases, rule=state.rule))
    asked.give_up_first()
    await quiet()
    assert asked.asked == ["first", "first"]


@pytest.mark.parametrize("is_answered", [False, True], ids=["open", "answered"])
async def test_it_is_not_sent_behind_a_later_question(asked: Asked, is_answered: bool) -> None:
    await asked.ask("s", "later")
    if is_answered:
        end = wire.done("Two weeks.", asked.edge.asked[-1].id, session_id="s", attempt=1)
        asked.edge.receive_replies([end])
    asked.give_up_first()
    await quiet()
    assert asked.asked == ["first", "later"]
    assert [end.source for end in asked.client.ends] in (["faq"], ["busy"], ["quote"], ["unsure"])


async def test_it_is_not_sent_behind_one_that_was_being_sent_when_it_was_given_up(asked: Asked) -> None:
    asked.redis.clear()
    await asked.ask("s", "later")
    asked.give_up_first()
    await quiet()
    asked.redis.set()
    await quiet()
    assert asked.asked == ["first", "later"]
    assert len(asked.client.ends) == 1
    assert asked.edge.serving.admission_gate.admissions.of(asked.cause.lanes[1]).inflight == int(
        asked.sent[-1].topic == TOPICS.requests("short", asked.cause.lanes[1])
    )


async def test_one_that_ended_before_it_could_be_sent_again_is_not(asked: Asked) -> None:
    asked.redis.clear()
    await asked.ask("s", "later")
    asked.give_up_first()
    asked.edge.serving.answering.cancel(next(iter(asked.edge.gateway.inflight._open.values())))
    asked.redis.set()
    await quiet()
    assert asked.asked == ["first", "later"]
