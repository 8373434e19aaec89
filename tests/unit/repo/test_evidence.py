"""One customer's short deadlines, cancels and stop strings change nothing that the others are judged by.

Each learner of the tree (docs/decisions/0039) first learns from customers who wait as the shop promises, then meets 200
requests of one client, and says afterwards what it said before. A control shows that it does learn from a server that
misses the promise. A slow reader is known to no learner: all of them see times before the socket.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from gateway.destination.admission import AdmissionLimits, AdmissionPolicy, promise
from gateway.destination.breaker import BreakerPolicy
from gateway.destination.choose import View, choose
from gateway.destination.destination import TO_CHAMPION, Destination, Question
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from gateway.telemetry.attainment import attainment
from gateway.telemetry.observation import observation_of
from shared.settings import Settings
from shared.versions.state import State
from shared.wire.deadline import Deadline
from shared.wire.messages import ResponseCreate
from shared.wire.outcome import Response, Timings
from shared.wire.session_key import SessionKey
from tests.support.builders import gateway as builders
from tests.support.builders.worker import LinearCosts, order, sequence
from workers.engine.upstream.choice import Breaker, Choice
from workers.schedule.goodput.goodput import Goodput
from workers.schedule.lengths import SHOWN, OutputLengths
from workers.schedule.sequence import Finished, Sequence
from workers.schedule.streams import Streams
from workers.telemetry.outcome import outcome_of

NOW: Final = 1_000_000.0
LIMITS: Final = AdmissionLimits.of(Settings())
CLIENTS: Final[dict[str, dict[str, Any]]] = {
    "first_token_ms: 120": {"first_token_ms": 120},
    "first_token_ms: 2900": {"first_token_ms": 2_900},
    "deadline_ms: 500": {"deadline_ms": 500},
    "deadline_ms: 14000": {"deadline_ms": 14_000},
    "cancels": {},
    "stops": {},
    "max_output_tokens: 1": {},
}


def deadline_of(now: float, **asked: Any) -> Deadline:
    return promise(ResponseCreate(event_id="e", input="x", **asked), LIMITS, now)


@dataclass
class Schedule:
    """A worker's roster: margin, classes' shares, bars, rows, lengths, and what it says to a new request."""

    lengths: OutputLengths = field(default_factory=OutputLengths)
    now: float = NOW
    asked: int = 0

    def __post_init__(self) -> None:
        self.policy = Goodput(LinearCosts(1.0, 10.0), self.lengths, num_slots=4)
        self.streams = Streams(self.policy, lengths=self.lengths, num_slots=4)

    def begin(self, **asked: Any) -> Sequence:
        self.asked += 1
        deadline = deadline_of(self.now, **asked)
        begun = sequence(
            f"r{self.asked}", range(20), output=100, deadline=deadline, arrived_unix_ms=self.now, held=True
        )
        self.streams.add(begun, self.now)
        self.streams.next(self.now)
        return begun

    def answer(self, count: int, **asked: Any) -> None:
        for _ in range(count):
            each = self.begin(**asked)
            for _ in range(40):
                self.streams.grew(each, self.now)
            self.streams.shown(each, self.now)
            self.now += 400
            self.streams.finish(each)

    def learn(self) -> None:
        self.answer(120)

    def meet(self, client: str) -> None:
        for _ in range(200):
            each = self.begin(**CLIENTS[client])
            if client == "cancels":
                self.streams.grew(each, self.now)
                self.streams.cancel(each.request_id)
                self.streams.sweep(self.now)
            elif client == "stops":
                self.streams.grew(each, self.now)
                self.streams.finish(each, by_client=True)
            elif client == "max_output_tokens: 1":
                each.max_output_tokens = 1
                self.streams.grew(each, self.now)
                self.streams.cut(each)
            else:
                self.streams.sweep(each.deadline.deadline_unix_ms)

    def fail(self) -> None:
        for _ in range(40):
            self.streams.sweep(self.begin().deadline.deadline_unix_ms)

    def verdict(self) -> object:
        books, rows = self.policy._books, self.policy._rows
        outlook = self.streams.outlook(self.now)
        assert outlook is not None
        return (
            round(self.policy._margin, 6),
            round(books.served_share, 6),
            rows.most(),
            rows.shown(),
            [self.lengths.predict(key, 500, 0.9) for key in ("short", SHOWN + "short")],
            [round(ms) for ms in outlook.first_token_ms.values()],
        )


@dataclass
class Fleet:
    """A gateway's breakers, the tries against a worker's report, and the ladder."""

    now: float = NOW
    asked: int = 0

    def __post_init__(self) -> None:
        self.ladder = Ladder()
        self.admissions = LaneAdmissions(AdmissionPolicy(breaker=BreakerPolicy(window_ms=1e9), worker_ttl_ms=1e9))
        self.report(50.0)

    def report(self, first_token_ms: float) -> None:
        for lane in ("champion", "light"):
            told = builders.report(name=lane, lane=lane, slots=8, running=8, first_token_ms=first_token_ms)
            self.admissions.observe(told, self.now)

    def ask(self, took_ms: float | None, **asked: Any) -> str:
        self.asked += 1
        name, self.now = f"r{self.asked}", self.now + 100
        deadline = deadline_of(self.now, **asked)
        question = Question(
            response_id=name,
            session=SessionKey("t", name),
            deadline=deadline,
            received_unix_ms=self.now,
        )
        view = View(
            now_unix_ms=self.now,
            state=State(),
            admissions=self.admissions,
            ladder=self.ladder,
            partition_of=lambda *_: 0,
        )
        choose(question, TO_CHAMPION, view)
        if took_ms is not None:
            self.admissions.note_first_reply(name, self.now + took_ms)
        return name

    def learn(self) -> None:
        for _ in range(50):
            self.ask(200.0)

    def meet(self, client: str) -> None:
        """The worker answers after 1.6 s, or skips what is long over; its reports say that it is late for 120 ms."""
        self.report(1_500.0)
        skipped = client == "deadline_ms: 500"
        for _ in range(200):
            name = self.ask(None if skipped or client == "cancels" else 1_600.0, **CLIENTS[client])
            if client == "cancels":
                self.admissions.withdraw(name)
        self.now += 60_000.0
        self.report(50.0)
        self.ask(200.0)

    def fail(self) -> None:
        for _ in range(50):
            self.ask(60_000.0)

    def verdict(self) -> object:
        champion = self.admissions.of("champion")
        reader = champion.fleet.reader("short", 0, self.now)
        assert reader is not None
        breakers = champion.breaker, reader.breaker
        return self.ladder.level, [(each.state, each.late) for each in breakers], reader._tried_unix_ms


@dataclass
class Evidence:
    """What is counted of each answer: a rollout's observations, the promise's metrics, a worker's outcomes."""

    counted: set[object] = field(default_factory=set)

    def end(self, took_ms: float, *, cancelled: bool = False, stood_in: bool = False, **asked: Any) -> None:
        entry = builders.make_entry(destination=Destination("canary", "new", 1), stood_in=stood_in)
        deadline = deadline_of(entry.request.received_unix_ms, **asked)
        entry.deadline = deadline
        response: Response = builders.answer(
            entry.response_id, "Hello", timings=Timings(ttft_ms=took_ms, total_ms=took_ms + 10)
        )
        if cancelled:
            response = builders.answer(entry.response_id, "", status="cancelled", reason="client")
        seen = observation_of(entry, response, 7)
        self.counted.add(("observation", None if seen is None else seen.missed))
        kept = attainment(response, entry.deadline, entry.request.received_unix_ms, stood_in=stood_in)
        self.counted.add(("promise", None if kept is None else (kept.first_token, kept.whole)))
        row = sequence(deadline=deadline_of(NOW, **asked))
        ended = Finished(row, "cancelled", "client") if cancelled else Finished(row, "incomplete", "deadline")
        if cancelled or stood_in:
            self.counted.add(("outcome", outcome_of(ended, NOW)))
        self.counted -= {("observation", None), ("promise", None), ("outcome", "withdrawn")}

    def learn(self) -> None:
        self.end(100.0)

    def meet(self, client: str) -> None:
        asked = CLIENTS[client]
        self.end(100.0, cancelled=client == "cancels", stood_in=bool(asked), **asked)

    def fail(self) -> None:
        self.end(15_000.0, stood_in=True)

    def verdict(self) -> object:
        return set(self.counted)


LEARNERS: Final[dict[str, Callable[[], Schedule | Fleet | Evidence]]] = {
    "schedule": Schedule,
    "fleet": Fleet,
    "evidence": Evidence,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_what_one_client_asks_for_changes_no_verdict_on_others(learner: str, client: str) -> None:
    judge = LEARNERS[learner]()
    judge.learn()
    before = judge.verdict()
    judge.meet(client)
    assert judge.verdict() == before


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_misses_the_promise_does(learner: str) -> None:
    judge = LEARNERS[learner]()
    judge.learn()
    before = judge.verdict()
    judge.fail()
    assert judge.verdict() != before


@pytest.mark.parametrize("gone_ms", [0, 1, 50, 90])
def test_a_client_that_sends_what_is_left_of_the_promise_asks_for_no_sooner_deadline(gone_ms: int) -> None:
    """Else a gateway's ladder, breakers and tries, and a rollout, learn nothing where all clients count down."""
    asked = {"first_token_ms": LIMITS.first_token_ms - gone_ms, "deadline_ms": LIMITS.deadline_ms - gone_ms}
    assert deadline_of(NOW, **asked).promised is None


def test_an_upstream_is_left_alone_by_requests_that_were_only_withdrawn() -> None:
    """A cancel, and a deadline sooner than the promise, leave a place without a word about the upstream."""
    choice = Choice(["a"], places=4)
    choice.probed("a", NOW, None, sent_unix_ms=NOW)
    for _ in range(200):
        assert choice.pick("c") == "a"
        choice.ended("a", NOW + 120, None, answered=False, sent_unix_ms=NOW)
    assert (choice.is_open("a"), choice.free, choice._upstreams["a"].breaker) == (False, 4, Breaker.CLOSED)


@pytest.mark.parametrize(
    ("asked", "short"),
    [
        ({}, False),
        ({"first_token_unix_ms": 120}, True),
        ({"deadline_unix_ms": 14_000}, True),
        ({"first_token_unix_ms": 9_000}, False),
        ({"first_token_unix_ms": 2_999, "deadline_unix_ms": 14_999}, False),
        ({"first_token_unix_ms": 2_910, "deadline_unix_ms": 14_550}, False),
        ({"first_token_unix_ms": 2_909}, True),
        ({"deadline_unix_ms": 14_549}, True),
    ],
)
def test_a_worker_knows_a_sooner_deadline_than_the_shops_from_any_producer(asked: dict[str, int], short: bool) -> None:
    created = int(NOW)
    fields: dict[str, Any] = {name: created + ms for name, ms in asked.items()}
    deadline = order(created_unix_ms=created, now=NOW + 20, **fields).by_a_clock_behind(5).deadline
    assert (deadline.promised is not None) == short
    if deadline.promised is not None:
        assert deadline.promised.first_token_unix_ms == created + LIMITS.first_token_ms - 5
