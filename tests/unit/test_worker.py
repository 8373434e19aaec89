"""A step's tokens become deltas and ends; a record is done when the end of its own answer is acknowledged."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.clock import now_unix_ms
from shared.errors import EngineError
from shared.fallback import Fallback
from shared.messages import ChatRequest, Grounding, Reply, ReplyDelta, ReplyDone, Timings, Usage
from shared.requests import Defaults, settle
from shared.session_key import SessionKey
from shared.tokenizer import Tokenizer
from shared.topics import TopicNames
from shared.turn import Turn
from workers.answer import Answer
from workers.conversation import Prompt
from workers.costs import CostModel
from workers.engine import Sampling
from workers.engine.fake import FakeEngine
from workers.engine_loop import EngineLoop, run_step
from workers.guard import FactGuard
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
    by_target: dict[Target, list[Reply]] = field(default_factory=dict)

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        self.said.append(delta)
        self.by_target.setdefault(target, []).append(delta)

    def done(self, target: Target, done: ReplyDone) -> None:
        self.said.append(done)
        self.by_target.setdefault(target, []).append(done)


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


QUOTED = Fallback(
    source="faq",
    text="Soon.",
    language="en",
    grounding=(Grounding(id="when", question="When?", answer="Soon."),),
)


def decided(bench: Bench, offset: int = 0, *, cancelled: bool = False, **request: Any) -> Job:
    """A request that the FAQ answers; `accept` has it."""
    fields = {"id": f"r{offset}", "session_id": "s", "input": "hi", "reply_topic": "chat.replies"} | request
    order = settle(ChatRequest(**fields), DEFAULTS, now_unix_ms())
    job = Job(
        order=order,
        bucket="short",
        sequence=Sequence(
            request_id=order.request.id,
            prompt_ids=[],
            max_output_tokens=3,
            sampling=Sampling(),
            deadline=order.deadline,
            arrived_unix_ms=now_unix_ms(),
        ),
        answer=Answer(
            request_id=order.request.id, session_id="s", attempt=1, token_bytes=TOKENIZER.token_bytes, stops=()
        ),
        prompt=Prompt(ids=[], shared_tokens=0),
        fallback=QUOTED,
        decided=True,
        origins=[(TOPIC, offset)],
    )
    bench.offsets.begin(TOPIC, offset)
    bench.worker.accept(job, cancelled=cancelled)
    return job


def test_what_the_model_is_not_asked_for_ends_at_once_and_is_remembered() -> None:
    bench = Bench()
    decided(bench)
    [end] = bench.ends()
    assert (end.status, end.reason, end.source, end.output_text) == ("completed", "stop", "faq", "Soon.")
    assert (end.grounding, end.model, end.usage) == (QUOTED.grounding, None, Usage())
    [turn] = bench.history.turns
    assert (turn.assistant, turn.source, turn.grounding) == ("Soon.", "faq", QUOTED.grounding)
    assert (turn.output_ids, turn.window_start) == ((), None)
    assert not bench.step(), "the engine has nothing to do"
    assert bench.offsets.committable() == {}
    bench.worker.settled(end)
    assert bench.offsets.committable() == {TOPIC: 1}
    assert bench.worker.idle


def test_a_decided_answer_is_told_again_like_any_other() -> None:
    bench = Bench()
    decided(bench)
    assert repeat(bench), "while its end is on its way"
    for end in bench.ends():
        bench.worker.settled(end)
    assert repeat(bench, partition=2)
    assert bench.publisher.by_target["chat.replies", 2] == [bench.ends()[0]]
    assert len(bench.history.turns) == 1


def test_a_decided_answer_that_nobody_waits_for_says_nothing() -> None:
    bench = Bench()
    decided(bench, cancelled=True)
    decided(bench, 1, created_unix_ms=1_000, deadline_unix_ms=2_000)
    assert [(end.status, end.reason, end.output_text) for end in bench.ends()] == [
        ("cancelled", "client", ""),
        ("incomplete", "deadline", ""),
    ]
    assert bench.history.turns == []


def test_another_service_has_a_decided_answer_however_late() -> None:
    """Nobody else would answer it."""
    bench = Bench()
    decided(bench, created_unix_ms=1_000, deadline_unix_ms=2_000, reply_topic="chat.replies.external")
    [end] = bench.ends()
    assert (end.status, end.source, end.output_text) == ("completed", "faq", "Soon.")


def test_a_text_of_which_nothing_can_be_shown_is_answered_instead() -> None:
    """The guard leaves out what names a foreign figure, and there is no entry to quote."""
    bench = Bench()
    job = bench.accept(0)
    job.answer = Answer(
        request_id="r0",
        session_id="s",
        attempt=1,
        token_bytes=lambda _: b"You have 99 days. ",
        stops=(),
        guard=FactGuard((), ("hi",)),
    )
    job.instead = QUOTED
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.source, end.output_text) == ("completed", "stop", "faq", "Soon.")
    assert [turn.assistant for turn in bench.history.turns] == ["Soon."]


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


# --- asked again, by another gateway


THERE: Target = ("chat.replies", 1)
AGAIN: tuple[Partition, int] = (TOPIC, 100)


def repeat(bench: Bench, offset: int = 0, *, text: str = "hi", partition: int | None = 1) -> bool:
    request = ChatRequest(
        id=f"r{offset}", session_id="s", input=text, reply_topic="chat.replies", reply_partition=partition
    )
    bench.offsets.begin(*AGAIN)
    return bench.worker.repeated(settle(request, DEFAULTS, now_unix_ms()), AGAIN)


def text_at(bench: Bench, target: Target) -> str:
    """As a gateway places it, by offset; its end agrees."""
    text, ends = "", []
    for reply in bench.publisher.by_target.get(target, []):
        if isinstance(reply, ReplyDelta):
            assert reply.offset <= len(text)
            text += reply.delta[len(text) - reply.offset :]
        else:
            ends.append(reply.output_text)
    assert ends == [text]
    return text


def test_an_answer_that_is_asked_for_again_goes_to_both_and_is_computed_once() -> None:
    bench = Bench()
    job = bench.accept(0, output=5)
    assert bench.step()
    assert bench.step()
    assert repeat(bench)
    bench.run()
    [home, there] = job.targets
    assert (text_at(bench, home), text_at(bench, there)) == ("aaaaa", "aaaaa")
    assert len(bench.history.turns) == 1


def test_both_records_are_done_when_both_have_the_end() -> None:
    bench = Bench()
    bench.accept(0)
    repeat(bench)
    bench.run()
    [end, same] = bench.ends()
    bench.worker.settled(end)
    assert bench.offsets.committable() == {}
    bench.worker.settled(same)
    assert bench.offsets.num_open == 0
    assert bench.worker.idle


def test_who_asks_again_at_the_same_gateway_gets_all_of_it_again() -> None:
    """Its process is another one, and has nothing of the text."""
    bench = Bench()
    job = bench.accept(0, output=4)
    assert bench.step()
    assert repeat(bench, partition=None)
    bench.run()
    assert len(job.targets) == 1
    assert [reply.offset for reply in bench.publisher.said if isinstance(reply, ReplyDelta)][:2] == [0, 0]
    assert text_at(bench, job.targets[0]) == "aaaa"


def test_what_was_answered_is_told_again_uncomputed() -> None:
    bench = Bench()
    bench.accept(0)
    bench.run()
    [end] = bench.ends()
    assert repeat(bench), "while its end is on its way"
    bench.worker.settled(end)
    bench.worker.settled(end)
    assert bench.worker.idle
    assert repeat(bench, partition=2)
    assert bench.publisher.by_target[THERE] == [_whole(end), end]
    assert bench.publisher.by_target["chat.replies", 2] == [end]
    bench.worker.settled(end)
    assert bench.offsets.num_open == 0
    assert not bench.step()


def _whole(end: ReplyDone) -> ReplyDelta:
    return ReplyDelta(request_id="r0", session_id="s", attempt=1, seq=0, offset=0, delta=end.output_text)


def test_another_question_under_the_same_id_is_told_nothing() -> None:
    bench = Bench()
    bench.accept(0)
    assert repeat(bench, text="something else")
    bench.run()
    assert THERE not in bench.publisher.by_target


def test_an_erased_conversations_answer_is_not_told_again() -> None:
    bench = Bench()
    bench.accept(0)
    bench.run()
    bench.worker.settled(bench.ends()[0])
    bench.worker.erase(SessionKey("demo", "s"))
    assert not repeat(bench)


def test_a_cancel_ends_the_work_when_nobody_is_left_to_wait() -> None:
    bench = Bench()
    request = ChatRequest(id="r0", session_id="s", input="hi", reply_topic="chat.replies", reply_partition=0)
    job = bench.accept(0, output=30)
    job.targets = [("chat.replies", request.reply_partition)]
    repeat(bench)
    assert bench.step()
    assert bench.worker.cancel("r0", 0)
    assert bench.step()
    assert bench.worker.cancel("r0", 0), "who was let go has no say any more"
    assert bench.step()
    assert job.targets == [THERE]
    assert bench.worker.cancel("r0", 1)
    bench.run()
    assert [(end.status, end.reason) for end in bench.ends()] == [("cancelled", "client")]
    assert bench.publisher.by_target[THERE][-1] == bench.ends()[0]


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


def test_another_services_reader_is_not_told_twice_of_a_request_that_is_delivered_twice() -> None:
    bench = Bench()
    job = bench.accept(0, output=3)
    job.targets = [("chat.replies.crm", None)]
    assert bench.step()
    bench.worker._tell_also(job, ("chat.replies.crm", None))
    bench.run()
    assert bench.deltas() == ["a", "a", "a"]
    assert len(bench.ends()) == 1
