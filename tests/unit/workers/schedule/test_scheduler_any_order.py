"""In any order of events no request is lost, none ends twice, and no slot holds another's tokens."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared.wire.session_key import SessionKey
from tests.support.fakes.scheduler_model import (
    STOP,
    ModelEngine,
    complete,
    engine_info,
    make_scheduler,
    make_sequence,
    pieces_of,
)
from tests.unit.examples import examples
from workers.schedule.scheduler import EngineStep
from workers.schedule.sequence import Phase, Prefix, Sequence, Token

SHARED = [1, 2, 3, 4, 5]


class SchedulerMachine(RuleBasedStateMachine):
    """A worker's life: events arrive during a step or between steps; the engine is `ModelEngine`."""

    @initialize(
        num_slots=st.integers(1, 4),
        chunk=st.integers(2, 10),
        rows=st.integers(1, 4),
        tokens=st.integers(1, 100),
        reuse_kv=st.booleans(),
        mixes=st.booleans(),
        speculates=st.booleans(),
    )
    def start(
        self, *, num_slots: int, chunk: int, rows: int, tokens: int, reuse_kv: bool, mixes: bool, speculates: bool
    ) -> None:
        rows = min(rows, num_slots)
        self.num_slots, self.chunk, self.tokens = num_slots, chunk, tokens
        self.scheduler = make_scheduler(
            num_slots,
            chunk,
            rows,
            max_running_tokens=tokens,
            reuse_kv=reuse_kv,
            mixes=mixes,
            speculates=mixes and speculates,
        )
        self.speculates = mixes and speculates
        self.reuse_kv = reuse_kv
        self.said: dict[SessionKey, list[int]] = {}
        self.engine = ModelEngine(engine_info(num_slots, rows, mixes=mixes))
        self.now = 0.0
        self.added = 0
        self.here: dict[str, Sequence] = {}
        self.cancelled: set[str] = set()
        self.shown: set[str] = set()
        self.under_way: EngineStep | None = None
        self.sampled = 10**6

    def end(self, sequence: Sequence) -> None:
        """The first and only time that it ends."""
        del self.here[sequence.request_id]
        self.cancelled.discard(sequence.request_id)
        assert sequence.phase is Phase.FINISHED
        assert sequence.request_id not in self.scheduler
        assert sequence.prefix.values is None
        self.said[sequence.session] = [*sequence.prompt_ids, *sequence.output_ids]

    # --- what happens at any time

    @rule(
        prompt=st.integers(1, 25),
        output=st.integers(1, 12),
        soft=st.integers(0, 60),
        more=st.integers(0, 60),
        held=st.booleans(),
    )
    def add(self, prompt: int, output: int, soft: int, more: int, held: bool) -> None:
        self.added += 1
        sequence = make_sequence(
            f"s{self.added}",
            prompt=prompt,
            output=output,
            soft=int(self.now) + soft,
            hard=int(self.now) + soft + more,
            arrived=self.now,
        )
        sequence.held = held
        self.scheduler.add(sequence, self.now)
        self.here[sequence.request_id] = sequence

    @precondition(lambda self: self.under_way is None and self.holding())
    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.holding()))
        self.scheduler.shown(sequence, self.now)
        self.shown.add(sequence.request_id)

    def holding(self) -> list[Sequence]:
        """Return the sequences that have written tokens but shown no text yet."""
        return [s for s in self.here.values() if s.held and s.output_ids and s.request_id not in self.shown]

    def late(self, sequence: Sequence) -> bool:
        shown = sequence.request_id in self.shown or (bool(sequence.output_ids) and not sequence.held)
        return sequence.deadline.expired(self.now, started=shown)

    @precondition(lambda self: self.reuse_kv)
    @rule(
        session=st.sampled_from("abc"),
        tenant=st.sampled_from("tu"),
        new=st.integers(1, 6),
        cached=st.integers(0, 20),
        kept=st.integers(0, 20),
    )
    def go_on(self, session: str, tenant: str, new: int, cached: int, kept: int) -> None:
        """A conversation's next prompt extends the earlier ones, and may bring KV for some of their tokens."""
        self.added += 1
        sequence = make_sequence(f"s{self.added}", prompt=new, soft=10**6, hard=10**6, tenant=tenant, session=session)
        sequence.shared_tokens = len(SHARED)
        before = self.said.get(sequence.session, SHARED)[:30]
        sequence.prompt_ids = [*before, *sequence.prompt_ids]
        there = min(cached, len(before))
        values = pieces_of(sequence.prompt_ids[:there])
        sequence.begin_with(Prefix(num_tokens=there, kept=min(kept, len(before)), values=values))
        self.scheduler.add(sequence, self.now)
        self.here[sequence.request_id] = sequence

    @precondition(lambda self: self.reuse_kv)
    @rule(session=st.sampled_from("abc"))
    def forget(self, session: str) -> None:
        self.scheduler.forget(SessionKey("t", session))

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
        late = {name for name, s in self.here.items() if self.late(s)} - self.cancelled
        ended = self.scheduler.sweep(self.now)
        for finished in ended:
            self.end(finished.sequence)
        reasons = {finished.sequence.request_id: (finished.status, finished.reason) for finished in ended}
        assert {name for name, why in reasons.items() if why == ("incomplete", "deadline")} == late, (
            "the late leave; none that is in time is late"
        )
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
        step = self.under_way = self.scheduler.next_step(self.now)
        self.assert_limits_are_kept()
        if step is None:
            assert not self.scheduler.num_running, "what runs has a step"
            return
        if not step.decode and not step.prefill:
            assert self.reuse_kv, "a step that only transfers"
            assert step.transfers
            assert not self.scheduler.num_running
        decoding = {s.request_id for s in step.decoded}
        assert decoding == {n for n, s in self.here.items() if s.phase is Phase.DECODE}, "none is left out of a step"
        assert not set(step.decoded) & set(step.prefilled)
        assert bool(step.prefill) == any(s.phase is Phase.PREFILL for s in self.here.values())
        assert sum(len(chunk.token_ids) for chunk in step.prefill) <= self.chunk
        here = [*step.decoded, *step.prefilled]
        assert not any(self.late(s) for s in here)
        self.engine.run(step)

    def assert_limits_are_kept(self) -> None:
        running = [s for s in self.here.values() if s.phase in (Phase.PREFILL, Phase.DECODE)]
        tokens = sum(len(s.prompt_ids) + s.max_output_tokens for s in running)
        assert tokens <= self.tokens or len(running) == 1, "one that is too big for the limit runs alone"

    # --- what happens when the engine is done

    @precondition(lambda self: self.under_way is not None)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        step, self.under_way = self.under_way, None
        assert step is not None

        def sample() -> int:
            self.sampled += 1  # another token each time, or one of two so that they can be looked up
            some = [7, 8] * 2 if self.speculates else [self.sampled] * 4
            return data.draw(st.sampled_from([*some, STOP]))

        prefilled = [None if chunk.sampling is None else sample() for chunk in step.prefill]
        decoded = [sample() for _ in step.decode]
        pairs = [*zip(step.decoded, decoded, strict=True), *zip(step.prefilled, prefilled, strict=True)]
        sampled = {s.request_id: token for s, token in pairs if token is not None}
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
        self.accept(data, step, decoded, sample)

    def accept(self, data: st.DataObject, step: EngineStep, first: list[int], sample: Callable[[], int]) -> None:
        """The engine sampled some of the proposed tokens, and one more after them."""
        verified = []
        for row, token in zip(step.decode, first, strict=True):
            tokens = [token]
            for proposed in row.proposed:
                if tokens[-1] != proposed:
                    break
                tokens.append(data.draw(st.sampled_from([proposed, sample()])))
            verified.append(tokens)
        for place in range(1, max(map(len, verified), default=0)):
            for event in self.scheduler.add_accepted(step, verified, place):
                if not isinstance(event, Token):
                    self.end(event.sequence)

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def fail(self) -> None:
        """The device failed somewhere in the step: requests in slots end, waiting requests are unharmed."""
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
            if sequence.phase is Phase.WAITING:
                continue
            assert sequence.computed == whole - 1 if sequence.output_ids else sequence.computed < whole
            assert len(sequence.output_ids) < sequence.max_output_tokens

    def teardown(self) -> None:
        """Without further events every request ends."""
        if not hasattr(self, "scheduler"):
            return
        if self.under_way is not None:
            complete(self.scheduler, self.under_way)
        for _ in range(1_000):
            self.scheduler.sweep(self.now)
            step = self.scheduler.next_step(self.now)
            if step is None:
                wake = self.scheduler.wake_unix_ms()
                if wake is None and not self.scheduler.num_waiting:
                    break
                self.now = max(wake or 0.0, self.now + 1)
                continue
            self.engine.run(step)
            complete(self.scheduler, step)
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=examples(400), stateful_step_count=60)
