"""A step's tokens become deltas and ends; a record is done when the end of its own answer is acknowledged."""

from dataclasses import dataclass, field

import pytest

from shared.clock import now_unix_ms
from shared.errors import EngineError
from shared.fallback import Fallback
from shared.messages import ChatRequest, Grounding, Reply, ReplyDelta, ReplyDone, Timings, Usage
from shared.requests import Defaults, settle
from shared.tokenizer import Tokenizer
from shared.topics import TopicNames
from shared.turn import Turn
from workers.answer import Answer
from workers.conversation import Prompt
from workers.costs import CostModel
from workers.engine import Sampling
from workers.engine.fake import FakeEngine
from workers.engine_loop import EngineLoop, run_step
from workers.job import Job
from workers.lengths import OutputLengths
from workers.offsets import OffsetTracker, Partition
from workers.policies import build_scheduler
from workers.reply_publisher import Target
from workers.scheduler import SchedulerLimits
from workers.sequence import Sequence
from workers.worker import Worker

TOKENIZER = Tokenizer.byte_level()
TOPIC: Partition = ("chat.requests.short", 0)
HOME: Target = ("chat.replies", 0)
LETTER_A = 3 + ord("a")


@dataclass
class FakePublisher:
    said: list[Reply] = field(default_factory=list)

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        self.said.append(delta)

    def done(self, target: Target, done: ReplyDone) -> None:
        self.said.append(done)


@dataclass
class FakeHistory:
    turns: list[Turn] = field(default_factory=list)

    def remember(self, tenant: str, session_id: str, turn: Turn) -> None:
        self.turns.append(turn)


@dataclass
class Bench:
    """A worker whose model says "a" without end, stepped by hand."""

    publisher: FakePublisher = field(default_factory=FakePublisher)
    history: FakeHistory = field(default_factory=FakeHistory)
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    interval_s: float = 0.0
    worker: Worker = field(init=False)
    engine_loop: EngineLoop = field(init=False)

    def __post_init__(self) -> None:
        engine = FakeEngine(num_slots=2, max_length=64, vocabulary=(LETTER_A,))
        limits = SchedulerLimits(
            num_slots=2,
            prefill_chunk_tokens=16,
            max_prefill_rows=2,
            stop_token_ids=engine.info.stop_token_ids,
        )
        costs = CostModel.prior()
        self.worker = Worker(
            engine=engine,
            scheduler=build_scheduler("goodput", limits=limits, costs=costs, lengths=OutputLengths()),
            costs=costs,
            publisher=self.publisher,  # type: ignore[arg-type]
            history=self.history,  # type: ignore[arg-type]
            offsets=self.offsets,
            topics=TopicNames(),
            max_waiting=4,
            reply_interval_s=self.interval_s,
        )
        self.engine_loop = self.worker.engine_loop
        self.engine_loop.tell = self.worker.hear

    def accept(self, offset: int, *, output: int = 3, stops: tuple[str, ...] = ()) -> Job:
        request = ChatRequest(id=f"r{offset}", session_id="s", input="hi", reply_topic="chat.replies")
        now = now_unix_ms()
        order = settle(request, DEFAULTS, now)
        job = Job(
            order=order,
            bucket="short",
            sequence=Sequence(
                request_id=request.id,
                prompt_ids=[5, 6, 7],
                max_output_tokens=output,
                sampling=Sampling(),
                deadline=order.deadline,
                arrived_unix_ms=now,
            ),
            answer=Answer(
                request_id=request.id, session_id="s", attempt=1, token_bytes=TOKENIZER.token_bytes, stops=stops
            ),
            prompt=Prompt(ids=[5, 6, 7], shared_tokens=0),
            fallback=Fallback(source="busy", text="busy", language="en"),
            origins=[(TOPIC, offset)],
        )
        self.offsets.begin(TOPIC, offset)
        self.worker.accept(job)
        return job

    def step(self) -> bool:
        """One step as the engine's thread makes it; False when there is nothing left to compute."""
        step = self.engine_loop.next_step()
        if step is None:
            self.engine_loop._tell_all()
            return False
        self.engine_loop.take_in(step, run_step(self.engine_loop.engine, step, self.engine_loop.keep))
        return True

    def run(self) -> None:
        while self.step():
            pass

    def deltas(self) -> list[str]:
        return [reply.delta for reply in self.publisher.said if isinstance(reply, ReplyDelta)]

    def ends(self) -> list[ReplyDone]:
        return [reply for reply in self.publisher.said if isinstance(reply, ReplyDone)]


DEFAULTS = Defaults(
    tenant="demo",
    output_tokens=16,
    max_output_tokens=16,
    first_token_ms=60_000,
    deadline_ms=60_000,
    max_deadline_ms=60_000,
    reply_topic="chat.replies.external",
    reply_topics=("chat.replies*",),
)


def too_late(request_id: str) -> ReplyDone:
    """The terminal event of a record that was never opened."""
    return ReplyDone(
        request_id=request_id,
        session_id="s",
        attempt=1,
        status="incomplete",
        reason="deadline",
        source="model",
        output_text="",
        usage=Usage(),
        timings=Timings(),
    )


def test_an_answer_is_told_in_deltas_and_remembered() -> None:
    bench = Bench()
    bench.accept(0)
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("incomplete", "max_output_tokens", "aaa")
    assert bench.deltas() == ["a", "a", "a"]
    assert [turn.assistant for turn in bench.history.turns] == ["aaa"]


def test_a_remembered_turn_says_how_it_stood_in_its_prompt() -> None:
    bench = Bench()
    entry = Grounding(id="when", question="When?", answer="Soon.")
    bench.accept(0)
    bench.accept(1).prompt = Prompt(ids=[5, 6, 7], shared_tokens=0, grounding=(entry,), window_start="r0")
    bench.run()
    first, second = sorted(bench.history.turns, key=lambda turn: turn.request_id)
    assert (first.window_start, first.grounding, first.output_ids) == ("r0", (), (LETTER_A,) * 3)
    assert (second.window_start, second.grounding) == ("r0", (entry,))


def test_a_stop_string_at_the_last_token_allowed_is_a_stop() -> None:
    bench = Bench()
    bench.accept(0, output=3, stops=("aaa",))
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("completed", "stop", "")


def test_a_record_is_done_only_after_its_end_is_acknowledged() -> None:
    bench = Bench()
    bench.accept(0)
    bench.accept(1)
    bench.run()
    assert bench.offsets.committable() == {}
    first, second = bench.ends()
    bench.worker.settled(second)
    assert bench.offsets.committable() == {}
    bench.worker.settled(first)
    assert bench.offsets.committable() == {TOPIC: 2}
    assert bench.worker.idle


def test_the_end_of_a_late_record_does_not_end_a_running_answer_of_the_same_id() -> None:
    """A producer that uses an id twice, or a record that was delivered again, must not bring the worker down."""
    bench = Bench()
    bench.accept(0, output=5)
    assert bench.step()
    bench.offsets.begin(TOPIC, 1)
    bench.worker.answer_unread(HOME, too_late("r0"), (TOPIC, 1))
    bench.worker.settled(too_late("r0"))
    assert bench.offsets.committable() == {}, "the first record's answer is still being written"
    bench.run()
    end = bench.ends()[-1]
    assert end.output_text == "aaaaa"
    bench.worker.settled(end)
    assert bench.offsets.committable() == {TOPIC: 2}


def test_a_cancelled_answer_ends_before_the_next_step() -> None:
    bench = Bench()
    bench.accept(0, output=9)
    assert bench.step()
    assert bench.worker.cancel("r0")
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("cancelled", "client", "a")
    assert not bench.worker.cancel("r0")


def test_the_first_text_and_the_end_are_told_at_once_and_the_rest_together() -> None:
    bench = Bench(interval_s=3_600)
    bench.accept(0, output=5)
    assert bench.step()
    assert bench.deltas() == ["a"]
    assert bench.step()
    assert bench.step()
    assert bench.deltas() == ["a"], "gathered"
    bench.accept(1, output=2)
    assert bench.step()
    assert bench.deltas() == ["a", "aaa", "a"], "another answer's first text takes along what was gathered"
    bench.run()
    assert sorted(end.output_text for end in bench.ends()) == ["aa", "aaaaa"]


class BrokenEngine(FakeEngine):
    """Its device fails at every decode."""

    def decode(self, rows: object) -> list[int]:
        raise EngineError("out of memory")


def test_an_engine_that_keeps_failing_ends_its_answers_and_then_the_worker() -> None:
    bench = Bench()
    bench.engine_loop.engine = BrokenEngine(num_slots=2, max_length=64, vocabulary=(LETTER_A,))
    for offset in range(6):
        bench.accept(offset)
    with pytest.raises(EngineError):
        bench.engine_loop.run()
    assert [(end.status, end.reason) for end in bench.ends()] == [("failed", "internal")] * len(bench.ends())
    assert all(end.error is not None and end.error.retryable for end in bench.ends())
