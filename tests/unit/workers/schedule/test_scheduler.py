"""The most urgent goes first, decoding never waits for a long prompt, and every end has its reason."""

import pytest

from shared.wire.session_key import SessionKey
from tests.support.builders.worker import LinearCosts
from tests.support.fakes.scheduler_model import STOP, complete, make_scheduler, make_sequence, pieces_of
from workers.schedule.goodput import build_scheduler
from workers.schedule.lengths import SHOWN, OutputLengths
from workers.schedule.scheduler import EngineStep, Scheduler, SchedulerLimits
from workers.schedule.sequence import Finished, Token
from workers.schedule.slots import Export, Move


def advance(scheduler: Scheduler, token_id: int = 7, now: float = 0.0) -> tuple[EngineStep, list[Token | Finished]]:
    step = scheduler.next_step(now)
    assert step is not None
    return step, complete(scheduler, step, token_id, now)


# --- behaviour


def test_a_sequence_goes_from_prompt_to_its_last_token() -> None:
    scheduler, sequence = make_scheduler(), make_sequence("s1", output=2)
    scheduler.add(sequence, 0)
    step, events = advance(scheduler, now=5)
    assert [chunk.token_ids for chunk in step.prefill] == [range(1_000, 1_004)]
    assert events == [Token(sequence, 7)]
    assert (sequence.first_step_unix_ms, sequence.first_token_unix_ms) == (5, 5)
    step, events = advance(scheduler, token_id=8)
    assert [(row.slot, row.past, row.token_id) for row in step.decode] == [(0, 4, 7)]
    assert events == [Token(sequence, 8), Finished(sequence, "incomplete", "max_output_tokens")]
    assert sequence.output_ids == [7, 8]
    assert "s1" not in scheduler


def test_a_long_prompt_is_computed_in_chunks_and_samples_once() -> None:
    scheduler, sequence = make_scheduler(chunk=8), make_sequence("s1", prompt=20)
    scheduler.add(sequence, 0)
    steps = [advance(scheduler) for _ in range(3)]
    assert [(step.prefill[0].past, len(step.prefill[0].token_ids)) for step, _ in steps] == [(0, 8), (8, 8), (16, 4)]
    assert [step.prefill[0].sampling is None for step, _ in steps] == [True, True, False]
    assert [events for _, events in steps] == [[], [], [Token(sequence, 7)]]


@pytest.mark.parametrize("chunk", [8, 100])
@pytest.mark.parametrize("bearable", [1, 16, 31, 32, 48, 64, 79, 80, 96, 500])
def test_decoding_stalls_no_longer_than_it_may(chunk: int, bearable: int) -> None:
    """A chunk has a multiple of sixteen tokens, at least sixteen; it has its full size while no row decodes."""
    scheduler = make_scheduler(chunk=chunk, decode_stall_ms=LinearCosts().prefill_ms(bearable))
    scheduler.add(make_sequence("s1", prompt=chunk), 0)
    assert len(advance(scheduler)[0].prefill[0].token_ids) == chunk
    scheduler.add(make_sequence("s2", prompt=200), 0)
    sixteens = min(max(bearable // 16, 1), 6)
    assert len(advance(scheduler)[0].prefill[0].token_ids) == min(16 * sixteens, chunk)


def test_a_chunk_after_much_of_its_prompt_is_smaller() -> None:
    """Its tokens attend to all tokens before them."""

    class GrowingCosts(LinearCosts):
        def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float:
            return 0.01 * (tokens + past)

    limits = SchedulerLimits(
        num_slots=2, prefill_chunk_tokens=96, max_prefill_rows=4, stop_token_ids=frozenset(), decode_stall_ms=0.645
    )
    scheduler = build_scheduler(limits=limits, costs=GrowingCosts(), lengths=OutputLengths())
    scheduler.add(make_sequence("s1", output=9), 0)
    advance(scheduler)
    scheduler.add(make_sequence("s2", prompt=96), 0)
    chunks = [advance(scheduler)[0].prefill[0] for _ in range(3)]
    assert [(chunk.past, len(chunk.token_ids)) for chunk in chunks] == [(0, 64), (64, 16), (80, 16)]


def test_no_more_tokens_are_in_the_slots_than_may_be_but_one_sequence_always_is() -> None:
    scheduler = make_scheduler(num_slots=3, max_running_tokens=14)
    for number in range(1, 6):
        scheduler.add(make_sequence(f"s{number}", prompt=4, output=3, arrived=number), 0)
    running = []
    while scheduler.num_waiting or scheduler.num_running:
        running.append({row.request_id for row in advance(scheduler)[0].prefilled})
    assert [names for names in running if names] == [{"s1", "s2"}, {"s3", "s4"}, {"s5"}]
    scheduler.add(make_sequence("s6", prompt=20), 0)
    assert advance(scheduler)[0].prefill


class Observed(OutputLengths):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int, bool]] = []

    def observe(self, key: str, output_tokens: int, ended_by_itself: bool) -> None:
        self.seen.append((key, output_tokens, ended_by_itself))


def test_lengths_are_learned_of_what_ended_and_of_what_was_cut_once_it_had_begun() -> None:
    """The stop token counts: it is computed like any other."""
    lengths = Observed()
    scheduler = make_scheduler(lengths=lengths)
    scheduler.add(make_sequence("s1", bucket="long"), 0)
    advance(scheduler)
    advance(scheduler, token_id=STOP)
    scheduler.add(make_sequence("s2", output=2), 0)
    advance(scheduler)
    advance(scheduler)
    scheduler.add(make_sequence("s3", prompt=20), 0)
    advance(scheduler)
    scheduler.cancel("s3")
    scheduler.sweep(0)
    stopped = make_sequence("s4")
    scheduler.add(stopped, 0)
    advance(scheduler)
    scheduler.finish(stopped)
    outputs = [seen for seen in lengths.seen if not seen[0].startswith(SHOWN)]
    assert outputs == [("long", 2, True), ("short", 2, False), ("short", 2, True)]


def test_it_is_learned_with_which_token_the_first_text_is_shown() -> None:
    """An answer that is not held back is shown with its first token; one held back to its end, with that. An answer cut
    by its deadline only shows that it would have taken longer; one cancelled by its client shows nothing."""
    lengths = Observed()
    scheduler = make_scheduler(num_slots=5, lengths=lengths)
    plain, shown, whole, cut, left = (make_sequence(f"s{number}", prompt=1, output=50) for number in range(5))
    for sequence in (plain, shown, whole, cut, left):
        sequence.held = sequence is not plain
        scheduler.add(sequence, 0)
    while not all(sequence.output_ids for sequence in (plain, shown, whole, cut, left)):
        advance(scheduler)
    assert lengths.seen == [(SHOWN + "short", 1, True)]
    scheduler.shown(shown, 7)
    scheduler.finish(whole)
    scheduler.cancel(left.request_id)
    scheduler.sweep(0)
    scheduler.sweep(cut.deadline.first_token_unix_ms)
    assert shown.shown_unix_ms == 7
    num_shown, num_whole, num_cut = (len(sequence.output_ids) for sequence in (shown, whole, cut))
    assert [seen for seen in lengths.seen[1:] if seen[0].startswith(SHOWN)] == [
        (SHOWN + "short", num_shown, True),
        (SHOWN + "short", num_whole + 1, True),
        (SHOWN + "short", num_cut, False),
    ]


def test_one_that_has_written_and_shown_nothing_ends_at_the_first_texts_deadline() -> None:
    """Its client has already received the fallback."""
    scheduler = make_scheduler(num_slots=2)
    held, shown = (make_sequence(name, prompt=1, output=50, soft=10, hard=100) for name in ("s1", "s2"))
    held.held = shown.held = True
    scheduler.add(held, 0)
    scheduler.add(shown, 0)
    while not (held.output_ids and shown.output_ids):
        advance(scheduler)
    scheduler.shown(shown, 9)
    assert [(end.sequence, end.reason) for end in scheduler.sweep(10)] == [(held, "deadline")]


def test_an_answer_is_planned_long_where_its_class_is_known_and_short_where_it_is_not() -> None:
    """Of a hundred answers known three turn out longer than planned."""
    lengths = OutputLengths(memory=1_000_000)
    for output_tokens in [*[10] * 95, *[30] * 105]:
        lengths.observe("long", output_tokens, ended_by_itself=True)
    scheduler = make_scheduler(num_slots=4, lengths=lengths)
    known, unknown, hinted = (
        make_sequence("s1", bucket="long", output=100),
        make_sequence("s2", output=100),
        make_sequence("s3", output=100),
    )
    hinted.output_hint = 7
    for sequence in (known, unknown, hinted):
        scheduler.add(sequence, 0)
    assert [sequence.expected_output_tokens for sequence in (known, unknown, hinted)] == [30, 20, 7]


def test_short_prompts_share_a_step_while_they_fit() -> None:
    scheduler = make_scheduler(num_slots=5, chunk=8, rows=3)
    for number, length in enumerate([4, 4, 3, 3, 2], start=1):
        scheduler.add(make_sequence(f"s{number}", prompt=length, arrived=number), number)
    assert [[row.request_id for row in advance(scheduler)[0].prefilled] for _ in range(2)] == [
        ["s1", "s2"],
        ["s3", "s4", "s5"],
    ]


def test_an_engine_that_mixes_is_given_what_fits_of_any_prompts_the_most_urgent_first() -> None:
    """One that is begun, one that ends with its chunk, and the beginning of one more."""
    scheduler = make_scheduler(num_slots=5, chunk=32, mixes=True)
    scheduler.add(make_sequence("s1", prompt=40, soft=900), 0)
    assert [(chunk.past, len(chunk.token_ids)) for chunk in advance(scheduler)[0].prefill] == [(0, 32)]
    for name, prompt, soft in (("s2", 10, 300), ("s3", 50, 950)):
        scheduler.add(make_sequence(name, prompt=prompt, soft=soft), 0)
    steps = [advance(scheduler)[0] for _ in range(2)]
    chunks = [
        {row.request_id: len(chunk.token_ids) for row, chunk in zip(step.prefilled, step.prefill, strict=True)}
        for step in steps
    ]
    assert chunks[0] == {"s1": 8, "s2": 10, "s3": 14}
    assert {row.slot: row.past for row in steps[1].decode} == {0: 40, 1: 10}
    assert chunks[1] == {"s3": 32}


def test_the_earliest_deadline_gets_the_free_slot() -> None:
    scheduler = make_scheduler(num_slots=1)
    for name, soft in [("s1", 900), ("s2", 300), ("s4", 600), ("s3", 600)]:
        scheduler.add(make_sequence(name, soft=soft, output=1), 0)
    order = [advance(scheduler)[0].prefilled[0].request_id for _ in range(4)]
    assert order == ["s2", "s4", "s3", "s1"], "of equal ones the first to come"


def test_an_urgent_prompt_overtakes_a_long_one_that_is_begun() -> None:
    scheduler = make_scheduler(num_slots=3, chunk=8)
    scheduler.add(make_sequence("s1", prompt=30, soft=900), 0)
    advance(scheduler)
    scheduler.add(make_sequence("s2", soft=100), 0)
    step, events = advance(scheduler)
    assert [row.request_id for row in step.prefilled] == ["s2"]
    assert len(events) == 1
    step, _ = advance(scheduler)
    assert [(row.slot, row.past) for row in step.decode] == [(0, 4)]
    assert [(chunk.slot, chunk.past) for chunk in step.prefill] == [(1, 8)]


def test_a_cancelled_sequence_is_out_before_the_next_step() -> None:
    scheduler, waiting, running = make_scheduler(num_slots=1), make_sequence("s2", soft=1_500), make_sequence("s1")
    scheduler.add(running, 0)
    advance(scheduler)
    scheduler.add(waiting, 0)
    assert scheduler.cancel("s1")
    assert scheduler.cancel("s2")
    assert "s1" in scheduler, "a step may be under way"
    assert scheduler.sweep(0) == [Finished(running, "cancelled", "client"), Finished(waiting, "cancelled", "client")]
    assert scheduler.next_step(0) is None


def test_without_a_token_the_soft_deadline_ends_it_and_with_one_the_hard() -> None:
    scheduler, early, late = make_scheduler(num_slots=1), make_sequence("s1", output=9), make_sequence("s2")
    scheduler.add(early, 0)
    advance(scheduler)
    scheduler.add(late, 0)
    assert scheduler.sweep(999) == []
    assert scheduler.sweep(1_000) == [Finished(late, "incomplete", "deadline")]
    assert scheduler.sweep(1_999) == []
    assert scheduler.sweep(2_000) == [Finished(early, "incomplete", "deadline")]


def test_one_id_is_never_here_twice_and_what_has_ended_cannot_end_again() -> None:
    scheduler, sequence = make_scheduler(), make_sequence("s1")
    scheduler.add(sequence, 0)
    with pytest.raises(AssertionError, match="here already"):
        scheduler.add(make_sequence("s1"), 0)
    scheduler.finish(sequence)
    with pytest.raises(AssertionError, match="FINISHED"):
        scheduler.finish(sequence)


def test_nothing_is_kept_of_what_has_ended_and_is_due() -> None:
    scheduler = make_scheduler()
    for number in range(1, 4):
        sequence = make_sequence(f"s{number}", soft=60_000, hard=60_000)
        scheduler.add(sequence, 0)
        scheduler.finish(sequence)
    scheduler.sweep(60_000)
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)
    assert not scheduler._late._due


def test_an_erased_conversation_that_waits_begins_with_nothing_and_leaves_nothing() -> None:
    scheduler = make_scheduler(num_slots=1, reuse_kv=True)
    scheduler.add(make_sequence("s1", output=1), 0)
    erased, other = (make_sequence(name, output=1, session=of) for name, of in (("s2", "a"), ("s3", "b")))
    for sequence in (erased, other):
        sequence.computed = 3
        sequence.prefix.values = pieces_of(sequence.prompt_ids[:3])
        scheduler.add(sequence, 0)
    scheduler.forget(SessionKey("t", "a"))
    assert (erased.prefix.values, erased.computed, other.prefix.values is None) == (None, 0, False)
    steps = [advance(scheduler)[0] for _ in range(3)]
    assert [step.prefill[0].past for step in steps] == [0, 0, 3]
    last = scheduler.next_step(0)
    assert last is not None
    transfers = [item for step in [*steps, last] for item in step.transfers]
    assert [item.sequence.request_id for item in transfers if isinstance(item, Export)] == ["s1", "s3"]
    assert scheduler.standing().keys() == {SessionKey("t", "b")}


def test_an_erased_conversation_that_runs_leaves_nothing() -> None:
    scheduler, erased, other = (
        make_scheduler(reuse_kv=True),
        make_sequence("s1", output=1, session="a"),
        make_sequence("s2", output=1, session="b"),
    )
    for sequence in (erased, other):
        scheduler.add(sequence, 0)
    step = scheduler.next_step(0)
    assert step is not None
    for name in ("a", "c"):
        scheduler.forget(SessionKey("t", name))
    assert (erased.erased, other.erased) == (True, False)
    complete(scheduler, step, 7, 0.0)
    last = scheduler.next_step(0)
    assert last is not None
    assert [item.sequence.request_id for item in last.transfers if isinstance(item, Export)] == ["s2"]
    assert scheduler.standing().keys() == {SessionKey("t", "b")}


def test_what_stands_in_another_slot_is_moved_rather_than_imported() -> None:
    """Of equal beginnings the one that is in memory already."""
    scheduler = make_scheduler(num_slots=3, chunk=16, reuse_kv=True)
    staying, gone, asked = (make_sequence(f"s{number}", output=9, session="-abc"[number]) for number in (1, 2, 3))
    for sequence in (staying, gone, asked):
        scheduler.add(sequence, 0)
    advance(scheduler)
    for sequence in (asked, gone):
        scheduler.finish(sequence)
    again = make_sequence("s3", prompt=6, session="c")
    again.prefix.values = pieces_of(again.prompt_ids[:4])
    scheduler.add(again, 0)
    step, _ = advance(scheduler)
    assert [item for item in step.transfers if not isinstance(item, Export)] == [Move(2, 1, 4)]
    assert (step.prefill[0].past, again.prefix.restored, again.prefix.imported) == (4, 4, 0)


def test_the_policy_hears_which_rows_missed_their_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(num_slots=4, chunk=16)
    heard: dict[str, bool | None] = {}
    monkeypatch.setattr(
        type(scheduler._policy), "ended", lambda _policy, row, *, missed: heard.update({row.request_id: missed})
    )
    late, done, failed, hopeless = (make_sequence(f"s{number}", output=9, hard=100 * number) for number in (1, 2, 3, 4))
    for sequence in (late, done, failed, hopeless):
        scheduler.add(sequence, 0)
    advance(scheduler)
    monkeypatch.setattr(type(scheduler._policy), "give_up", lambda _policy, _now, _load: [hopeless])
    assert [finished.sequence for finished in scheduler.sweep(100)] == [late, hopeless]
    scheduler.finish(done)
    scheduler.finish(failed, failed=True)
    assert heard == {"s1": True, "s2": False, "s3": False, "s4": True}
