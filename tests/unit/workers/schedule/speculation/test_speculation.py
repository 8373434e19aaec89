"""Proposals come from the conversation's own sources in order, and cost nothing when they would not pay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.session_key import SessionKey
from tests.support.builders.worker import LinearCosts, sequence
from workers.engine import MAX_PROPOSED, DecodeRow, Sampling
from workers.schedule.sequence import Sequence
from workers.schedule.speculation.pricing import Offer, lengths_worth, may_pay
from workers.schedule.speculation.speculation import Acceptance, Source, Speculation
from workers.schedule.work import Work

STOP = 2
CHEAP = LinearCosts(token_ms=0.01, step_ms=10.0, row_ms=0.01)
"""A step's first row takes nearly all of its time, as on an idle CPU."""
FULL = LinearCosts(token_ms=1.0, step_ms=0.5, row_ms=1.0)
"""Each token takes as long as a row, as in a large batch."""


def proposed(speculation: Speculation, row: Sequence) -> tuple[tuple[int, ...], tuple[Source, ...]]:
    decoding = DecodeRow(slot=0, past=len(row.prompt_ids), token_id=row.output_ids[-1], sampling=Sampling())
    [found], sources = speculation.propose((decoding,), [row])
    return found.proposed, sources


def row_of(prompt: list[int], output: list[int], *, shop: tuple[int, int] | None = None, **more: Any) -> Sequence:
    made = sequence("r", prompt, output=50, **more)
    made.output_ids = output
    made.shop_spans = () if shop is None else (shop,)
    return made


def test_the_shops_text_comes_before_the_conversation() -> None:
    prompt = [10, 11, 12, 13, 90, 10, 11, 55, 56]
    speculation = Speculation(CHEAP, {STOP})
    assert proposed(speculation, row_of(prompt, [10, 11], shop=(0, 4))) == ((12, 13), ("faq",))
    assert proposed(speculation, row_of(prompt, [10, 11])) == ((55, 56, 10, 11), ("conversation",))
    assert proposed(speculation, row_of(prompt, [77])) == ((), ())


def test_recent_answers_are_proposed_to_their_own_tenant_alone() -> None:
    """An answer's pace would show what another tenant's customers got."""
    speculation = Speculation(CHEAP, {STOP}, shares_answers=True)
    speculation.ended(row_of([1, 3], [20, 21, 22, 23], tenant="a", session="s"), keep=True)
    assert proposed(speculation, row_of([5, 6], [20, 21], tenant="a", session="t")) == ((22, 23), ("tenant",))
    assert proposed(speculation, row_of([5, 6], [20, 21], tenant="b", session="s")) == ((), ())


@pytest.mark.parametrize("how", ["not shared", "failed", "erased before its end", "erased after its end"])
def test_an_answer_that_failed_or_was_erased_is_never_proposed_nor_any_unless_they_are_shared(how: str) -> None:
    speculation = Speculation(CHEAP, {STOP}, shares_answers=how != "not shared")
    answered = row_of([1, 3], [20, 21, 22, 23], tenant="a", session="s")
    answered.erased = how == "erased before its end"
    speculation.ended(answered, keep=how != "failed")
    if how == "erased after its end":
        speculation.forget(SessionKey("a", "s"))
    assert proposed(speculation, row_of([5, 6], [20, 21], tenant="a", session="t")) == ((), ())


def test_no_end_token_is_proposed_and_no_token_beyond_the_limit() -> None:
    prompt = [10, 11, 12, 13, STOP, 14, 15, 16]
    speculation = Speculation(CHEAP, {STOP})
    assert proposed(speculation, row_of(prompt, [10, 11]))[0] == (12, 13)
    short = row_of(prompt, [14, 15])
    short.max_output_tokens = 4
    assert proposed(speculation, short)[0] == (16,), "the last token is sampled in the same step"
    assert proposed(speculation, row_of(prompt, [12, 13])) == ((), ()), "the end comes next"


def test_a_source_that_is_mostly_wrong_is_verified_no_more_until_it_is_right_again() -> None:
    """The rates are learned from the sampled tokens, whether or not they were verified."""
    speculation = Speculation(LinearCosts(token_ms=0.6, step_ms=1.0), {STOP})
    prompt = list(range(10, 40))

    def answered(*tokens: int) -> None:
        for _ in range(10):
            row = row_of(prompt, [10, 11])
            proposed(speculation, row)
            for token_id in tokens:
                speculation.appended(row, token_id)
                row.output_ids.append(token_id)
            speculation.ended(row, keep=False)

    answered(*range(12, 39))
    assert proposed(speculation, row_of(prompt, [10, 11]))[0]
    for _ in range(20):
        answered(99)
    assert proposed(speculation, row_of(prompt, [10, 11])) == ((), ())
    assert speculation.acceptance["faq"].rate == Acceptance().rate, "each source by itself"
    answered(*range(12, 39))
    assert proposed(speculation, row_of(prompt, [10, 11]))[0]


@given(
    st.lists(st.builds(Offer, st.floats(0, 1), st.integers(0, 40), st.integers(1, 900)), min_size=1, max_size=64),
    st.floats(0, 2),
    st.floats(0.01, 20),
    st.floats(0, 2),
)
def test_the_chosen_tokens_are_predicted_to_be_faster_than_none(
    offers: list[Offer], token_ms: float, step_ms: float, row_ms: float
) -> None:
    costs = LinearCosts(token_ms, step_ms, row_ms)
    rows = Work(rows=len(offers), context=sum(offer.past for offer in offers))
    lengths = lengths_worth(offers, rows, costs)
    assert all(0 <= length <= offer.length for length, offer in zip(lengths, offers, strict=True))
    assert sum(lengths) <= MAX_PROPOSED
    if any(lengths):
        expected = len(offers) + sum(
            offer.rate**place for offer, n in zip(offers, lengths, strict=True) for place in range(1, n + 1)
        )
        assert expected / costs.ms(rows.joined(sum(lengths), 0)) > 1.09 * len(offers) / costs.ms(rows)


def test_a_full_batch_proposes_nothing_and_an_idle_machine_does() -> None:
    many = [Offer(0.99, 16, 100)] * 16
    rows = Work(rows=16, context=1_600)
    assert not any(lengths_worth(many, rows, FULL))
    assert not may_pay(rows, FULL)
    assert lengths_worth([Offer(0.99, 16, 100)], Work(rows=1, context=100), CHEAP) == [16]
    assert may_pay(Work(rows=1, context=100), CHEAP)
    assert lengths_worth([Offer(0.0, 16, 100)], Work(rows=1, context=100), CHEAP) == [0]
