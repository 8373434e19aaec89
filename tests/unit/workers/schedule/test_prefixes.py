"""The KV in a slot is reused for the prompts that may use it, as far as their tokens agree, and never after its
removal."""

from hypothesis import given
from hypothesis import strategies as st

from shared.wire.session_key import SessionKey
from tests.support.builders.worker import sequence
from tests.support.fakes.scheduler_model import (
    ModelEngine,
    complete,
    engine_info,
    make_scheduler,
    make_sequence,
    pieces_of,
)
from workers.schedule.prefixes import SlotPrefix, SlotPrefixes, common_length
from workers.schedule.scheduler import Scheduler
from workers.schedule.sequence import Phase, Sequence

SHARED = [1, 2, 3]
SESSION = SessionKey("t", "a")


def row_of(ids: list[int], *, shared: int = len(SHARED), computed: int | None = None, **of: str) -> Sequence:
    computed = len(ids) if computed is None else computed
    return sequence("s1", ids, shared_tokens=shared, computed=computed, **of)


def left(*rows: Sequence) -> SlotPrefixes:
    """Return the contents of the slots 0, 1, … after these sequences."""
    prefixes = SlotPrefixes()
    for slot, row in enumerate(rows):
        prefixes.leave(slot, row)
    return prefixes


def longest(
    prefixes: SlotPrefixes, ids: list[int], *, slot: int = 9, running: tuple[Sequence, ...] = (), **of: object
) -> SlotPrefix | None:
    return prefixes.longest(row_of(ids, **of), slot, enumerate(running))  # type: ignore[arg-type]


# --- what may be used


def test_the_longest_is_taken_and_of_equal_ones_that_which_is_in_place() -> None:
    prefixes = left(row_of([*SHARED, 4]), row_of([*SHARED, 4, 5]), row_of([*SHARED, 4, 5]))
    assert longest(prefixes, [*SHARED, 4, 5, 6], slot=2) == SlotPrefix(2, 5)
    assert longest(prefixes, [*SHARED, 4, 5, 6], slot=0) in (SlotPrefix(1, 5), SlotPrefix(2, 5))
    assert longest(prefixes, [*SHARED, 4, 9], slot=0) == SlotPrefix(0, 4)


def test_a_conversation_gets_the_slot_that_holds_it_and_another_the_one_that_was_left_first() -> None:
    prefixes = left(row_of(SHARED, session="a"), row_of(SHARED, session="b"), row_of(SHARED, session="a"))
    prefixes.leave(0, row_of(SHARED, session="c"))
    asked = {name: row_of(SHARED, session=name) for name in ("a", "b", "c", "d", "")}
    slots = range(3)
    assert {name: prefixes.choose(row, slots) for name, row in asked.items()} == {"a": 2, "b": 1, "c": 0, "d": 1, "": 1}
    assert prefixes.choose(asked["d"], [0, 2, 3]) == 3, "nothing is lost by that one"
    assert prefixes.choose(asked["b"], [0]) == 0


# --- removed prefixes


def test_what_is_overwritten_erased_or_not_to_be_trusted_is_gone() -> None:
    ids = [*SHARED, 4]
    for lose in (
        lambda prefixes: prefixes.overwrite(0),
        lambda prefixes: prefixes.forget(SESSION),
        lambda prefixes: prefixes.clear(),
    ):
        prefixes = left(row_of(ids))
        lose(prefixes)
        assert longest(prefixes, ids) is None
        assert prefixes.in_place(row_of(ids), 0) == 0


def test_erasing_one_conversation_leaves_the_others() -> None:
    prefixes = left(row_of([*SHARED, 4]), row_of([*SHARED, 4], session="b"), row_of([*SHARED, 4], tenant="u"))
    prefixes.forget(SESSION)
    assert longest(prefixes, [*SHARED, 4]) == SlotPrefix(1, 3), "the shop's words, from another conversation"
    assert longest(prefixes, [*SHARED, 4], session="b") == SlotPrefix(1, 4)
    assert longest(prefixes, [*SHARED, 4], tenant="u") == SlotPrefix(2, 4)


# --- always

tokens = st.lists(st.integers(0, 2), min_size=1, max_size=8)
rows = st.builds(
    lambda ids, tenant, session, shared, computed: row_of(
        ids, tenant=tenant, session=session, shared=min(shared, len(ids)), computed=min(computed, len(ids))
    ),
    tokens,
    st.sampled_from("tu"),
    st.sampled_from(["", "a", "b"]),
    st.integers(0, 8),
    st.integers(0, 8),
)


@given(asked=rows, ended=st.lists(rows, max_size=4), running=st.lists(rows, max_size=3), slot=st.integers(0, 4))
def test_no_more_is_claimed_than_is_there_and_may_be_told(
    asked: Sequence, ended: list[Sequence], running: list[Sequence], slot: int
) -> None:
    """The length is the most that any slot offers: the common beginning, between conversations the shop's words of
    both, between tenants nothing."""

    def usable(other: Sequence) -> int:
        if other.session.tenant != asked.session.tenant:
            return 0
        there = list(other.prompt_ids)[: other.computed]
        same = bool(asked.session.session_id) and asked.session == other.session
        most = len(there) if same else min(asked.shared_tokens, other.shared_tokens)
        return min(common_length(list(asked.prompt_ids), there), most)

    first = len(running)  # slots of those that ended, behind those that run
    prefixes = SlotPrefixes()
    for number, row in enumerate(ended):
        prefixes.leave(first + number, row)
    found = prefixes.longest(asked, slot, enumerate(running))
    if found is None:
        assert not any(map(usable, ended))
        return
    assert found.length == usable([*running, *ended][found.slot]) > 0
    assert found.length >= max(map(usable, ended), default=0)
    assert 0 <= prefixes.in_place(asked, slot) <= found.length


# --- in the scheduler: the engine checks whose token is at each position, and fails on a stale one


class Turns:
    """A scheduler and its engine; each `ask` is a turn of a conversation."""

    def __init__(self, num_slots: int, chunk: int = 8) -> None:
        self.scheduler: Scheduler = make_scheduler(num_slots, chunk, num_slots, reuse_kv=True)
        self.engine = ModelEngine(engine_info(num_slots, num_slots))
        self._asked = 0

    def ask(self, ids: list[int], *, output: int = 2, soft: int = 1_000, **of: str) -> Sequence:
        self._asked += 1
        row = make_sequence(f"s{self._asked}", output=output, soft=soft, session=of.get("session", "a"))
        row.prompt_ids, row.shared_tokens = ids, len(SHARED)
        self.scheduler.add(row, 0)
        return row

    def step(self) -> None:
        self.scheduler.sweep(0)
        step = self.scheduler.next_step(0)
        if step is not None:
            self.engine.run(step)
            complete(self.scheduler, step)

    def answered(self, ids: list[int], **of: str) -> Sequence:
        row = self.ask(ids, **of)
        while row.phase is not Phase.FINISHED:
            self.step()
        return row


LONG = [*SHARED, *range(10, 30)]
OTHER = [*SHARED, *range(40, 60)]


def test_a_slot_that_kv_was_imported_into_holds_nothing_of_the_one_before() -> None:
    """Cancelled before anything was computed of it: a more urgent one had the step."""
    turns = Turns(2)
    other, ended = turns.ask([5, 6], session="b", output=20), turns.ask(LONG)
    while ended.phase is not Phase.FINISHED:
        turns.step()
    assert turns.scheduler._slots.slot_of(other) == 0
    while other.phase is not Phase.FINISHED:
        turns.step()
    urgent = turns.ask([7, 8, 9, 10, 11], session="c", soft=100)
    intruder = turns.ask(OTHER, session="d", soft=900)
    intruder.prefix.values = pieces_of(OTHER[:20])
    intruder.computed = 20
    turns.step()
    assert (urgent.begun, intruder.prefix.imported, intruder.begun) == (True, 20 - len(SHARED), False)
    turns.scheduler.cancel(intruder.request_id)
    turns.step()
    assert turns.answered([*LONG, 31]).prefix.restored == 0


def test_a_slot_given_on_to_one_that_is_not_begun_holds_nothing_of_the_one_before() -> None:
    """A row without anything computed closes a gap without a move, and is then computed there."""
    turns = Turns(3)
    ending = turns.ask(LONG[:6], output=6)
    turns.step()
    urgent = turns.ask([*OTHER, *range(60, 90)], session="b", soft=100)
    late = turns.ask([*range(70, 80), *OTHER], session="c", soft=900)
    while ending.phase is not Phase.FINISHED:
        turns.step()
    assert (turns.scheduler._slots.slot_of(late), late.computed, urgent.phase) == (0, 0, Phase.PREFILL)
    turns.scheduler.cancel(urgent.request_id)
    turns.step()
    assert late.begun
    assert turns.answered([*LONG[:6], *ending.output_ids, 31]).prefix.restored == 0


def test_a_prompt_that_counted_on_a_slot_which_is_taken_is_computed() -> None:
    """It was queued with tokens that it expected to reuse from the slot, and it brought no KV for them."""
    turns = Turns(1)
    row = turns.ask(LONG)
    row.computed = 12
    while row.phase is not Phase.FINISHED:
        turns.step()
    assert row.prefix.restored == 0


def test_after_a_failure_of_the_engine_no_slot_is_believed() -> None:
    turns = Turns(1)
    turns.answered(LONG)
    turns.scheduler.finish_running()
    assert turns.answered([*LONG, 31]).prefix.restored == 0
