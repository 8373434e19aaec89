"""A step's tokens become deltas and ends; a record is done when the end of its answer is acknowledged."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.errors import EngineError
from shared.process.clock import monotonic_s, now_unix_ms
from shared.wire.deadline import Deadline
from shared.wire.failed_ends import OWN_FAULT, failed_end
from shared.wire.messages import Cancel
from shared.wire.outcome import Grounding, Usage
from shared.wire.requests import Target
from tests.support.builders.wire import done
from tests.support.builders.worker import LETTER_A, QUOTED, TOPIC, Bench, answer
from tests.support.fakes.gateways import quiet
from workers.answer.guard import FactGuard
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.fake import FakeEngine
from workers.prompt.conversation import Prompt

HOME: Target = ("chat.replies", 0)
# The terminal event of a record that was never opened.
TOO_LATE = done("", "r0", status="incomplete", reason="deadline")


def test_an_answer_is_told_in_deltas_and_remembered_as_it_stood_in_its_prompt() -> None:
    bench = Bench()
    entry = Grounding(id="when", question="When?", answer="Soon.")
    bench.accept(0).prompt = Prompt(ids=[5, 6, 7], shared_tokens=0, grounding=(entry,), window_start="r-earlier")
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("incomplete", "max_output_tokens", "aaa")
    assert bench.deltas() == ["a", "a", "a"]
    [turn] = bench.history.turns
    assert (turn.output_text, turn.status, turn.reason) == ("aaa", "incomplete", "max_output_tokens")
    assert (turn.window_start, turn.grounding, turn.output_ids) == ("r-earlier", (entry,), (LETTER_A,) * 3)


class CountingEngine(FakeEngine):
    """It notes how many chunks and rows each call computes."""

    def __init__(self, *, mixes: bool) -> None:
        super().__init__(num_slots=2, max_length=64, mixes=mixes)
        self.calls: list[tuple[int, int]] = []

    def _compute(
        self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]
    ) -> tuple[list[int | None], list[list[int]]]:
        self.calls.append((len(chunks), len(rows)))
        return super()._compute(chunks, rows)


def test_a_step_is_one_call_of_an_engine_that_mixes() -> None:
    """The answers are those of an engine that computes its rows and its prompts in turn."""
    engines = [CountingEngine(mixes=mixes) for mixes in (True, False)]
    texts: list[list[str]] = []
    for engine in engines:
        bench = Bench(engine=engine)
        bench.accept(0, output=4)
        bench.step()
        bench.accept(1, output=4)
        bench.run()
        texts.append([end.output_text for end in sorted(bench.ends(), key=lambda end: end.request_id)])
    assert texts[0] == texts[1]
    assert engines[0].calls == [(1, 0), (1, 1), (0, 2), (0, 2), (0, 1)]
    assert engines[1].calls == [(1, 0), (0, 1), (1, 0), (0, 2), (0, 2), (0, 1)]


def test_what_the_model_is_not_asked_for_ends_at_once_and_is_remembered() -> None:
    bench = Bench()
    bench.accept(0, decided=True)
    [end] = bench.ends()
    assert (end.status, end.reason, end.source, end.output_text) == ("completed", "stop", "faq", "Soon.")
    assert (end.grounding, end.model, end.usage) == (QUOTED.grounding, None, Usage())
    [turn] = bench.history.turns
    assert (turn.output_text, turn.source, turn.grounding) == ("Soon.", "faq", QUOTED.grounding)
    assert (turn.output_ids, turn.window_start) == ((), None)
    assert not bench.step(), "the engine has nothing to do"
    assert bench.offsets.committable() == {}
    bench.acknowledge()
    assert bench.offsets.committable() == {TOPIC: 1}
    assert bench.worker.idle


def test_a_decided_answer_that_nobody_waits_for_says_nothing() -> None:
    bench = Bench()
    bench.accept(0, decided=True, cancelled=True)
    late = {"created_unix_ms": 1_000, "deadline_unix_ms": 2_000}
    bench.accept(1, decided=True, **late)
    told = [(turn.request_id, turn.status, turn.output_text) for turn in bench.history.turns]
    assert told == [("r0", "cancelled", "")], "it counts before the turn of a worker that missed the cancel"
    bench.accept(2, decided=True, **late, reply_topic="chat.replies.external")
    assert [(end.status, end.reason, end.output_text) for end in bench.ends()] == [
        ("cancelled", "client", ""),
        ("incomplete", "deadline", ""),
        ("completed", "stop", "Soon."),
    ], "another service has it however late: nobody else would answer it"


def test_a_text_of_which_nothing_can_be_shown_is_answered_instead() -> None:
    """The guard leaves out what names a foreign figure, and there is no entry to quote."""
    bench = Bench()
    job = bench.accept(0)
    job.answer = answer("r0", token_bytes=lambda _: b"You have 99 days. ", guard=FactGuard((), ("hi",)))
    job.instead = QUOTED
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.source, end.output_text) == ("completed", "stop", "faq", "Soon.")
    assert [turn.output_text for turn in bench.history.turns] == ["Soon."]


@pytest.mark.parametrize(
    ("words", "told"), [((b"It", b" is", b" so"), ""), ((b"It is.", b" And", b" so"), "It is. And so")]
)
def test_what_is_held_back_is_not_shown_after_its_deadline(words: tuple[bytes, ...], told: str) -> None:
    """Half a sentence that comes too late is no answer; of an answer that has begun the rest is shown."""
    bench = Bench()
    job = bench.accept(0, output=16)
    job.sequence.held = True
    written = iter(words)
    job.answer = answer("r0", token_bytes=lambda _: next(written), guard=FactGuard((), ("hi",)))
    for _ in words:
        bench.step()
    assert (job.sequence.shown_unix_ms is not None) is bool(told)
    job.sequence.deadline = Deadline(first_token_unix_ms=0, deadline_unix_ms=0)
    bench.step()
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("incomplete", "deadline", told)


def test_an_answer_that_goes_round_in_circles_ends_before_its_last_token() -> None:
    bench = Bench()
    job = bench.accept(0, output=50)
    job.answer = answer("r0", token_bytes=lambda _: b"Well, it is a fine day. ", guard=FactGuard((), ("hi",)))
    bench.run()
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("completed", "stop", "Well, it is a fine day.")
    assert end.usage.output_tokens < 50


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
    bench.acknowledge(request_id=second.request_id)
    assert bench.offsets.committable() == {}
    bench.acknowledge(request_id=first.request_id)
    assert bench.offsets.committable() == {TOPIC: 2}
    assert bench.worker.idle


def test_what_is_said_of_an_answer_is_to_be_read_until_its_end_is_acknowledged() -> None:
    """The reader may be any worker that owns its partition at that time."""
    bench = Bench()
    assert bench.answers.partitions == set()
    bench.accept(0)
    bench.offsets.lose([TOPIC])
    assert bench.answers.partitions == {TOPIC}
    bench.run()
    (end,) = bench.ends()
    bench.acknowledge(request_id=end.request_id)
    assert bench.answers.partitions == set()


def test_the_end_of_a_late_record_does_not_end_a_running_answer_of_the_same_id() -> None:
    """A producer that uses an id twice, or a record that was delivered again, must not bring the worker down."""
    bench = Bench()
    bench.accept(0, output=5)
    assert bench.step()
    bench.offsets.open(TOPIC, 1)
    bench.answers.unread.answer(HOME, TOO_LATE, (TOPIC, 1))
    bench.acknowledge(target=HOME)
    assert bench.offsets.committable() == {}, "the first record's answer is still being written"
    bench.run()
    assert bench.ends()[-1].output_text == "aaaaa"
    bench.acknowledge()
    assert bench.offsets.committable() == {TOPIC: 2}


async def test_a_refused_request_under_an_open_id_has_its_end_at_its_own_reader_alone() -> None:
    """Two tenants chose the same id."""
    bench = Bench()
    bench.accept(0, output=5)
    refusing = asyncio.create_task(bench.answers.unread.refuse(HOME, TOO_LATE))
    await asyncio.sleep(0)
    assert bench.ends() == [TOO_LATE]
    bench.acknowledge(target=HOME)
    await refusing
    bench.run()
    assert bench.ends()[-1].output_text == "aaaaa"


def test_a_record_that_is_read_again_too_late_has_the_end_of_its_own_answer() -> None:
    """After a rebalance, past its deadline: an empty end would reach its reader first."""
    bench = Bench()
    bench.accept(0, output=5)
    assert bench.step()
    bench.answers.unread.answer(("chat.replies", None), TOO_LATE, (TOPIC, 0))
    bench.run()
    assert [end.output_text for end in bench.ends()] == ["aaaaa"]
    bench.acknowledge()
    assert bench.offsets.committable() == {TOPIC: 1}
    assert bench.worker.idle


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


def test_a_clock_that_is_put_back_does_not_freeze_the_outlook() -> None:
    bench = Bench()
    bench.accept(0, output=9)
    assert bench.step()
    latest = bench.engine_loop._outlook
    latest.value, latest._renewed_unix_ms = None, now_unix_ms() + 3_600_000
    assert bench.step()
    assert bench.engine_loop.outlook is not None


def test_what_can_be_expected_is_known_anew_soon_after_somebody_came_or_went() -> None:
    """The event loop is notified too; while no request starts or ends, the outlook is checked a few times a second."""
    bench = Bench()
    changes: list[int] = []
    bench.engine_loop.changed = lambda: changes.append(bench.engine_loop.outlook.running)  # type: ignore[union-attr]
    bench.accept(0, output=9)
    assert bench.step()
    bench.engine_loop._outlook._renewed_unix_ms -= 25
    assert bench.step()
    assert changes == [1], "it is as it was"
    bench.accept(1, output=9)
    bench.engine_loop._outlook._renewed_unix_ms -= 25
    assert bench.step()
    assert changes == [1, 2]


def test_of_an_engine_that_hangs_no_answer_is_expected_and_what_stands_in_its_slots_is_suspected() -> None:
    """Waiting requests have lost nothing. Their worker sends the gateways no further reports until the step ends."""
    bench = Bench()
    for offset in range(3):
        bench.accept(offset)
    assert bench.step()
    loop, now_s = bench.engine_loop, monotonic_s()
    for passed_s, stuck, outlook in ((1, False, True), (4, False, False), (31, True, False)):
        loop.watch._since_s = now_s - passed_s
        assert (loop.stuck() is not None, loop.outlook is not None) == (stuck, outlook)
        assert (bench.worker.idle, bench.worker.suspects) == (stuck, [(TOPIC, 0), (TOPIC, 1)] if stuck else [])
    bench.run()
    assert loop.stuck() is None
    assert loop.outlook is not None


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
    assert bench.engine_loop.watch._since_s is None
    assert [(end.status, end.reason) for end in bench.ends()] == [("failed", "internal")] * len(bench.ends())
    assert all(end.error is not None and end.error.retryable for end in bench.ends())


async def test_who_is_refused_hears_so_and_what_follows_waits_for_the_acknowledgement() -> None:
    bench = Bench()
    telling = asyncio.create_task(bench.answers.unread.refuse(HOME, failed_end("r9", "s", OWN_FAULT, attempt=1)))
    await quiet()
    assert not telling.done()
    assert not bench.worker.idle
    bench.acknowledge()
    await telling
    assert bench.worker.idle
    bench.accept(0)


async def test_a_reader_of_two_requests_under_one_id_gets_the_end_of_each() -> None:
    """The refusal is delayed, because the reader could treat it as the first one's end."""
    bench = Bench()
    (reader,) = bench.accept(0, output=2).targets
    refusing = asyncio.create_task(bench.answers.unread.refuse(reader, failed_end("r0", "s", OWN_FAULT, attempt=1)))
    await quiet()
    assert not bench.ends()
    bench.run()
    bench.acknowledge()
    while not (len(bench.ends()) == 2 and bench.worker.idle):
        await asyncio.sleep(0.01)
        bench.acknowledge()
    await refusing
    assert [end.status for end in bench.ends()] == ["incomplete", "failed"]


async def test_without_its_engine_a_worker_drains_what_has_ended_and_waits_for_no_answer() -> None:
    bench = Bench()
    bench.engine_loop.engine = BrokenEngine(num_slots=2, max_length=64, vocabulary=(LETTER_A,))
    for offset in range(9):
        bench.accept(offset)
    with pytest.raises(EngineError):
        await bench.worker.compute(bench.versions.serving)
    num_ended = len(bench.ends())
    assert 0 < num_ended < 9, "three failures end two each"
    drained = asyncio.create_task(bench.worker.drain(3_600))
    await asyncio.sleep(0)
    assert not drained.done(), "their ends are on their way"
    bench.acknowledge()
    async with asyncio.timeout(1):
        assert await drained == 9 - num_ended


class SlowEngine(FakeEngine):
    """An engine that records, when a step begins, the text sent before."""

    bench: Bench | None = None
    told_before: list[str]

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        assert self.bench is not None
        self.told_before = [end.request_id for end in self.bench.ends()]
        return super().decode(rows)


def test_an_answer_that_is_taken_out_ends_before_the_next_step() -> None:
    """A request that is cancelled, too late or given up does not wait for the computation of others."""
    engine = SlowEngine(num_slots=2, max_length=64, vocabulary=(LETTER_A,))
    bench = engine.bench = Bench(engine=engine)
    bench.accept(0, output=9)
    bench.accept(1, output=9)
    assert bench.step()
    assert bench.worker.cancel(Cancel(request_id="r0"))
    assert bench.step()
    assert engine.told_before == ["r0"]
    [end] = bench.ends()
    assert (end.status, end.reason, end.output_text) == ("cancelled", "client", "a")
    assert not bench.worker.cancel(Cancel(request_id="r0"))
