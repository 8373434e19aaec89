"""Whatever is done to whose clock, an answer ends by its deadline, once, and what is written is soon by the clock."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.admission.control import AdmissionLimits, promise
from gateway.request.cursor import CursorKey, Place, response_id
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.request.outbox import Outbox
from shared.process.process_clock import ProcessClock
from shared.settings import Settings
from shared.wire.messages import ChatRequest, ResponseCreate, ResponseDone
from shared.wire.requests import settle
from shared.wire.session_key import SessionKey
from tests.support.fakes.machine_runs import run_machine
from tests.support.reliability import Reliability
from tests.unit.gateway.request.test_inflight import FAQ, delta, done

SESSION = SessionKey("t", "s")
SEAL = CursorKey(b"secret").seal(SessionKey("t", "s"))
LIMITS = AdmissionLimits.of(Settings())
DEFAULTS = Settings().request_defaults
START_MS = 1_800_000_000_000.0
TICK_MS, OBSERVED_EVERY_MS = 50.0, 500.0
GRACE_MS, ADOPTED_WITHIN_MS = 250.0, 5_000.0
JUMPS_MS = [sign * size for size in (1_000.0, 60_000.0, 3_600_000.0) for sign in (1, -1)]


@dataclass
class Machine:
    """A process and its clocks; `off_ms` is what its wall clock is ahead of the true time, since `set_ms`."""

    off_ms: float
    booted_ms: float
    set_ms: float = 0.0
    clock: ProcessClock = field(init=False)
    table: InflightTable = field(default_factory=InflightTable)

    def __post_init__(self) -> None:
        self.clock = ProcessClock(START_MS + self.off_ms - self.booted_ms)

    def now(self, true_ms: float) -> float:
        return self.clock.now(true_ms + self.booted_ms)

    def observe(self, true_ms: float) -> None:
        self.clock.observe(START_MS + true_ms + self.off_ms, true_ms + self.booted_ms)


@dataclass
class Question:
    """What its client knows: when it asked, until when it is to be answered, and what it has heard."""

    entry: Entry
    at: int
    due_ms: float
    outbox: Outbox
    cursor: str = ""
    cursor_ms: float = 0.0
    ends: int = 0


class Clocks(RuleBasedStateMachine):
    """Two gateways and a worker, each with clocks of its own. `true_ms` is what nobody of them sees."""

    @initialize(
        offs=st.tuples(*[st.sampled_from([0.0, *JUMPS_MS])] * 3), booted=st.tuples(*[st.floats(0, 1e9).map(round)] * 3)
    )
    def begin(self, offs: tuple[float, ...], booted: tuple[int, ...]) -> None:
        self.true_ms, self.asked = 0.0, 0
        self.machines = [Machine(off, float(boot)) for off, boot in zip(offs, booted, strict=True)]
        self.questions: list[Question] = []

    @rule(whose=st.integers(0, 2), jump_ms=st.sampled_from(JUMPS_MS))
    def jump(self, whose: int, jump_ms: float) -> None:
        machine = self.machines[whose]
        machine.off_ms, machine.set_ms = machine.off_ms + jump_ms, self.true_ms

    @rule(at=st.integers(0, 1), whole_ms=st.integers(1, 10_000), soft_ms=st.integers(1, 3_000), shown=st.booleans())
    def ask(self, at: int, whole_ms: int, soft_ms: int, shown: bool) -> None:
        """Each has its `response.created`; some have text."""
        machine, number = self.machines[at], self.asked
        self.asked += 1
        now, event = machine.now(self.true_ms), f"e{number}"
        asked = ResponseCreate(event_id=event, input="hi", deadline_ms=whole_ms, first_token_ms=soft_ms)
        entry = Entry(
            response_id=response_id(SessionKey("t", "s"), event, "hi"),
            event_id=event,
            tenant="t",
            session_id="s",
            connection_id="c",
            input="hi",
            received_unix_ms=now,
            deadline=promise(asked, LIMITS, now),
            clock_ms=machine.clock.correction_ms,
            log=Place(at, 0),
            request=Place(0, number),
        )
        question = Question(entry, at, self.true_ms + (whole_ms if shown else min(soft_ms, whole_ms)), Outbox())
        question.outbox.begin(SEAL, (), now)
        self.questions.append(question)
        machine.table.accept(entry)
        machine.table.admit(entry, "short", now)
        self.show(question, machine.table.acknowledge(entry))
        if shown:
            self.show(question, machine.table.delta(delta("Hel", request_id=entry.response_id), now))

    def show(self, question: Question, items: list[Item]) -> None:
        for item in items:
            question.outbox.put(item)
        for message in question.outbox.take(self.machines[question.at].now(self.true_ms)):
            question.cursor, question.cursor_ms = getattr(message, "cursor", ""), self.true_ms
            if isinstance(message, ResponseDone):
                question.ends += 1

    def open(self) -> list[Question]:
        return [question for question in self.questions if not question.ends]

    @precondition(lambda self: self.open())
    @rule(data=st.data())
    def worker_answers(self, data: st.DataObject) -> None:
        """As far as it believes that it may; its clock may tell it anything."""
        question = data.draw(st.sampled_from(self.open()))
        machine, worker = self.machines[question.at], self.machines[2]
        entry, clock_ms = question.entry, worker.clock.correction_ms
        deadline = entry.deadline.later(entry.clock_ms)
        request = ChatRequest(
            id=entry.response_id,
            session_id="s",
            input="hi",
            created_unix_ms=entry.asked_unix_ms,
            deadline_unix_ms=deadline.deadline_unix_ms,
            first_token_unix_ms=deadline.first_token_unix_ms,
        )
        now = worker.now(self.true_ms)
        order = settle(request, DEFAULTS, now + clock_ms).by_a_clock_behind(clock_ms)
        assert order.deadline.deadline_unix_ms <= now + DEFAULTS.max_deadline_ms
        if not order.deadline.expired(now, started=True):
            text = (entry.text or "Hel") + "lo"
            self.show(question, machine.table.finish(entry, done(text, request_id=entry.response_id), 0.0))

    @precondition(lambda self: self.open())
    @rule(data=st.data(), told_age=st.booleans())
    def gateway_dies(self, data: st.DataObject, told_age: bool) -> None:
        """Its clients come to the other, with what the cursor says and how long ago it came. Who does not say so is
        answered by clocks that may differ, and promised nothing here."""
        at = data.draw(st.sampled_from(self.open())).at
        self.machines[at].table = InflightTable()
        heir = self.machines[1 - at]
        for question in [each for each in self.open() if each.at == at]:
            if not told_age:
                self.questions.remove(question)
                continue
            (each,) = SEAL.read(question.cursor) or ()
            now, wire = heir.now(self.true_ms), heir.now(self.true_ms) + heir.clock.correction_ms
            each.age_ms = each.elapsed_ms(wire, round(self.true_ms - question.cursor_ms))
            question.at, question.outbox = 1 - at, Outbox()
            question.outbox.begin(SEAL, [each], now)
            question.entry = heir.table.adopt(each, SESSION, "c", now)
            heir.table.recalled(question.entry)

    @rule(ticks=st.integers(1, 60))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.true_ms += TICK_MS
            for machine in self.machines:
                if self.true_ms % OBSERVED_EVERY_MS == 0:
                    machine.observe(self.true_ms)
            for at, machine in enumerate(self.machines[:2]):
                self._deadlines(at, machine)

    def _deadlines(self, at: int, machine: Machine) -> None:
        now = machine.now(self.true_ms)
        for entry in machine.table.late(now):
            (question,) = [each for each in self.open() if each.entry is entry]
            assert question.at == at
            ends = machine.table.cut(entry, now) if entry.chars else machine.table.fall_back(entry, FAQ, now)
            self.show(question, ends)

    @invariant()
    def nobody_waits_beyond_the_deadline(self) -> None:
        assert all(
            self.true_ms <= question.due_ms + GRACE_MS
            for question in getattr(self, "questions", ())
            if not question.ends
        )

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        assert all(question.ends <= 1 for question in getattr(self, "questions", ()))

    @invariant()
    def what_is_written_is_by_the_clock_within_seconds(self) -> None:
        for machine in getattr(self, "machines", ()):
            if self.true_ms - machine.set_ms >= ADOPTED_WITHIN_MS:
                written = machine.now(self.true_ms) + machine.clock.correction_ms
                assert abs(written - (START_MS + self.true_ms + machine.off_ms)) <= 1


@pytest.mark.promise(2)
def test_no_clock_that_is_set_makes_an_answer_late_or_comes_twice(reliability: Reliability) -> None:
    run_machine(reliability, Clocks)
