"""In any order of events nothing is lost, none ends twice, and no slot holds another's tokens."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scheduler_model import STOP, ModelEngine, complete, engine_info, make_scheduler, make_sequence

from workers.scheduler import Step
from workers.sequence import Phase, Sequence, Token


class SchedulerMachine(RuleBasedStateMachine):
    """A worker's life: events come while a step is under way or not; the engine is `ModelEngine`."""

    @initialize(num_slots=st.integers(1, 4), chunk=st.integers(2, 10), rows=st.integers(1, 4))
    def start(self, num_slots: int, chunk: int, rows: int) -> None:
        rows = min(rows, num_slots)
        self.num_slots, self.chunk = num_slots, chunk
        self.scheduler = make_scheduler(num_slots, chunk, rows)
        self.engine = ModelEngine(engine_info(num_slots, rows))
        self.now = 0.0
        self.added = 0
        self.here: dict[str, Sequence] = {}
        self.cancelled: set[str] = set()
        self.under_way: Step | None = None
        self.sampled = 10**6

    def end(self, sequence: Sequence) -> None:
        """The first and only time that it ends."""
        del self.here[sequence.request_id]
        self.cancelled.discard(sequence.request_id)
        assert sequence.phase is Phase.FINISHED
        assert sequence.request_id not in self.scheduler

    # --- what happens at any time

    @rule(prompt=st.integers(1, 25), output=st.integers(1, 5), soft=st.integers(0, 60), more=st.integers(0, 60))
    def add(self, prompt: int, output: int, soft: int, more: int) -> None:
        self.added += 1
        sequence = make_sequence(
            f"s{self.added}",
            prompt=prompt,
            output=output,
            soft=int(self.now) + soft,
            hard=int(self.now) + soft + more,
            arrived=self.now,
        )
        self.scheduler.add(sequence)
        self.here[sequence.request_id] = sequence

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([*self.here, "unknown"]))
        assert self.scheduler.cancel(name) is (name in self.here)
        self.cancelled |= {name} & self.here.keys()

    @rule(ms=st.floats(0, 20))
    def time_passes(self, ms: float) -> None:
        self.now += ms

    # --- what happens between steps

    @precondition(lambda self: self.under_way is None)
    @rule()
    def sweep(self) -> None:
        late = {
            name for name, s in self.here.items() if s.deadline.expired(self.now, started=bool(s.output_ids))
        } - self.cancelled
        ended = self.scheduler.sweep(self.now)
        for finished in ended:
            self.end(finished.sequence)
        reasons = {finished.sequence.request_id: (finished.status, finished.reason) for finished in ended}
        assert {name for name, why in reasons.items() if why == ("incomplete", "deadline")} == late
        assert not self.cancelled

    @precondition(lambda self: self.under_way is None and self.here)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        sequence = self.here[data.draw(st.sampled_from(list(self.here)))]
        self.scheduler.finish(sequence)
        self.end(sequence)

    @precondition(lambda self: self.under_way is None)
    @rule()
    def begin_step(self) -> None:
        self.sweep()
        waiting = [s for s in self.here.values() if s.phase is Phase.WAITING]
        step = self.under_way = self.scheduler.next_step(self.now)
        self.assert_slots_go_to_the_most_urgent(waiting)
        if step is None:
            assert not self.here
            return
        assert {s.request_id for s in step.decoded} == {n for n, s in self.here.items() if s.phase is Phase.DECODE}
        assert not set(step.decoded) & set(step.prefilled)
        assert sum(len(chunk.token_ids) for chunk in step.prefill) <= self.chunk
        self.assert_prefill_goes_to_the_most_urgent(step)
        self.engine.run(step)

    def assert_slots_go_to_the_most_urgent(self, were_waiting: list[Sequence]) -> None:
        admitted = [s for s in were_waiting if s.phase is Phase.PREFILL]
        left = [s for s in were_waiting if s.phase is Phase.WAITING]
        if left:
            assert self.scheduler.num_running == self.num_slots, "none waits beside a free slot"
        for one in admitted:
            assert all(one.due_unix_ms <= other.due_unix_ms for other in left)

    def assert_prefill_goes_to_the_most_urgent(self, step: Step) -> None:
        """Unless every slot is taken and the row next to the decoding ones is begun: that could not change places."""
        prefilling = [s for s in self.here.values() if s.phase is Phase.PREFILL]
        assert bool(prefilling) == bool(step.prefill), "a prompt that has a slot never waits without reason"
        if not prefilling:
            return
        first = min(prefilling, key=self.scheduler.slot_of)
        if self.scheduler.num_running < self.num_slots or not first.computed:
            assert step.prefilled[0].due_unix_ms == min(s.due_unix_ms for s in prefilling)
        else:
            assert step.prefill[0].slot == len(step.decode)

    # --- what happens when the engine is done

    @precondition(lambda self: self.under_way is not None)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        step, self.under_way = self.under_way, None
        assert step is not None

        def sample() -> int:
            self.sampled += 1
            return data.draw(st.sampled_from([self.sampled] * 4 + [STOP]))

        prefilled = [None if chunk.sampling is None else sample() for chunk in step.prefill]
        decoded = [sample() for _ in step.decode]
        pairs = [*zip(step.decoded, decoded, strict=True), *zip(step.prefilled, prefilled, strict=True)]
        sampled = {sequence.request_id: token for sequence, token in pairs if token is not None}
        before = {name: list(sequence.output_ids) for name, sequence in self.here.items()}
        for event in self.scheduler.complete(step, prefilled, decoded, self.now):
            name = event.sequence.request_id
            if isinstance(event, Token):
                assert sampled.pop(name) == event.token_id == event.sequence.output_ids[-1]
                assert event.sequence.output_ids[:-1] == before[name]
            elif event.reason == "stop":
                assert sampled.pop(name) == STOP
                self.end(event.sequence)
            else:
                assert (event.status, event.reason) == ("incomplete", "max_output_tokens")
                assert len(event.sequence.output_ids) == event.sequence.max_output_tokens
                self.end(event.sequence)
        assert not sampled, "every sampled token is told"

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def fail(self) -> None:
        """The device failed somewhere in the step: what stood in a slot ends, what waits is unharmed."""
        self.under_way = None
        waiting = [s for s in self.here.values() if s.phase is Phase.WAITING]
        for sequence in self.scheduler.finish_running():
            self.end(sequence)
        assert list(self.here.values()) == waiting

    # --- always

    @invariant()
    def nothing_is_lost_and_no_slot_is_oversubscribed(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        assert all(name in self.scheduler for name in self.here)
        assert self.scheduler.num_waiting + self.scheduler.num_running == len(self.here)
        assert self.scheduler.num_running <= self.num_slots
        for sequence in self.here.values():
            whole = len(sequence.prompt_ids) + len(sequence.output_ids)
            assert sequence.computed == whole - 1 if sequence.output_ids else sequence.computed < whole
            assert len(sequence.output_ids) < sequence.max_output_tokens

    def teardown(self) -> None:
        """Left alone, everything comes to its end."""
        if not hasattr(self, "scheduler"):
            return
        if self.under_way is not None:
            complete(self.scheduler, self.under_way)
        for _ in range(500):
            step = self.scheduler.next_step(self.now)
            if step is None:
                break
            self.engine.run(step)
            complete(self.scheduler, step)
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=200, stateful_step_count=60)
