"""What a prompt leaves out where it has no room: the oldest turns, then entries, never of the question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.wire.messages import Grounding
from tests.support.samples.prompts import (
    ENTRIES,
    GROUNDING,
    HOSTILE,
    TEMPLATE,
    TURNS,
    WHEN,
    build,
    readable,
    said,
)
from workers.prompt.budget import PromptBudget, whole_sentences

TALK = [said("u1", "a1"), said("u2", "a2")]


def test_the_oldest_turns_give_way_first() -> None:
    whole = build(grounding=GROUNDING, turns=TALK).ids
    assert build(grounding=GROUNDING, turns=TALK, max_tokens=len(whole)).ids == whole
    less = build(grounding=GROUNDING, turns=TALK, max_tokens=len(whole) - 1)
    assert less == build(grounding=GROUNDING, turns=TALK[1:])
    assert less.window_start == "u2"


def test_entries_give_way_after_all_turns_and_the_best_stays_longest() -> None:
    two = len(build(grounding=GROUNDING).ids)
    assert build(grounding=GROUNDING, turns=TALK, max_tokens=two) == build(grounding=GROUNDING)
    assert build(grounding=GROUNDING, max_tokens=two - 1) == build(grounding=[WHEN])


def test_a_question_that_does_not_fit_is_too_long() -> None:
    least = len(build().ids)
    assert len(build(grounding=GROUNDING, turns=TALK, max_tokens=least).ids) == least
    with pytest.raises(ProtocolError, match=f"take {least} tokens, the slot leaves {least - 1}") as caught:
        build(max_tokens=least - 1)
    assert (caught.value.code, caught.value.param) == ("input_too_long", "input")


def test_a_long_entry_is_cut_at_a_sentence_and_the_question_stays() -> None:
    long = Grounding(id="l", question="Terms?", answer="You have 100 days. " * 1_250)
    prompt = build("when?", grounding=[long], max_tokens=1_000, budget=PromptBudget(entry_tokens=100))
    text = readable(prompt.ids)
    assert text.endswith("⟨user\nwhen?⟩\n⟨assistant\n")
    assert "A: You have 100 days. You have 100 days." in text
    assert text.split("⟩")[0].endswith("100 days.")
    assert prompt.grounding == (long,)


def test_the_turns_have_a_budget_of_their_own() -> None:
    budget = PromptBudget(history_tokens=len(build(turns=TALK).ids) - len(build().ids) - 1)
    prompt = build(grounding=GROUNDING, turns=TALK, budget=budget)
    assert prompt == build(grounding=GROUNDING, turns=TALK[1:])
    assert build(turns=TALK, budget=PromptBudget(history_tokens=0)) == build()


@given(st.text("ab. 。1\n", max_size=120), st.integers(1, 60))
def test_a_text_is_cut_between_words_and_fits(text: str, most: int) -> None:
    cut = whole_sentences(text, most, len)
    assert text.startswith(cut)
    assert len(cut) <= most
    if cut != text:
        assert not (text[: len(cut) + 1][-2:].isalnum() and cut), "a word is whole or not there"


@given(HOSTILE, ENTRIES, TURNS, st.integers(1, 400))
def test_the_budget_is_kept_and_the_question_is_whole(
    question: str, grounding: list[Grounding], turns: list[Turn], max_tokens: int
) -> None:
    least = len(build(question).ids)
    if least > max_tokens:
        with pytest.raises(ProtocolError):
            build(question, grounding=grounding, turns=turns, max_tokens=max_tokens)
        return
    prompt = build(question, grounding=grounding, turns=turns, max_tokens=max_tokens)
    assert least <= len(prompt.ids) <= max_tokens
    asked = [*TEMPLATE.message("user", question), *TEMPLATE.answer]
    assert prompt.ids[-len(asked) :] == asked
