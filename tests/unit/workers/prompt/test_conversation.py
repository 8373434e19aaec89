"""A prompt follows the chat template, and only the service can write a role into it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.model.chat_template import ChatTemplate
from shared.model.tokenizer import shown_text
from shared.wire.outcome import Grounding
from tests.support.samples.prompts import (
    END,
    ENTRIES,
    GROUNDING,
    HOSTILE,
    MOST_TURNS,
    OUTPUT_IDS,
    PLANTED_IDS,
    START,
    TEMPLATE,
    TOKENIZER,
    TURNS,
    WHEN,
    WHERE,
    build,
    readable,
    said,
)
from workers.prompt.conversation import PromptBudget, PromptBuilder, whole_sentences

ASKED = "⟨user\nq?⟩\n⟨assistant\n"


def test_entries_stand_before_the_question_that_needed_them_first() -> None:
    turns = [said("u1", "a1", [WHEN]), said("u2", "a2", [WHEN]), said("u3", "a3")]
    assert readable(build(turns=turns, grounding=GROUNDING).ids) == (
        "⟨system\nS\n\nQ: When?\nA: Soon.⟩\n⟨user\nu1⟩\n⟨assistant\na1⟩\n"
        "⟨user\nu2⟩\n⟨assistant\na2⟩\n"
        "⟨user\nu3⟩\n⟨assistant\na3⟩\n"
        "⟨system\nQ: Where?\nA: Here.⟩\n" + ASKED
    )


def test_the_prompt_says_where_the_shops_text_is() -> None:
    turns = [said("u1", "a1", [WHEN]), said("u2", "a2", [WHEN]), said("u3", "a3")]
    prompt = build(turns=turns, grounding=GROUNDING)
    assert [readable(prompt.ids[start:stop]) for start, stop in prompt.shop_spans] == [
        "⟨system\nS\n\nQ: When?\nA: Soon.⟩\n",
        "⟨system\nQ: Where?\nA: Here.⟩\n",
    ]
    assert build(system="").shop_spans == ()


def test_once_the_window_slides_only_the_question_has_its_entries() -> None:
    """Nothing after the system text is computed already, and nothing will be used again."""
    turns = [said("u1", "a1", [WHEN]), said("u2", "a2", [WHEN])]
    assert readable(build(turns=turns, grounding=[WHEN], most_turns=1).ids) == (
        "⟨system\nS⟩\n⟨user\nu2⟩\n⟨assistant\na2⟩\n⟨system\nQ: When?\nA: Soon.⟩\n" + ASKED
    )


def test_without_system_text_and_entries_there_is_no_system_message() -> None:
    assert readable(build(system="").ids) == ASKED
    assert readable(build(system="", grounding=[WHEN]).ids) == "⟨system\nQ: When?\nA: Soon.⟩\n" + ASKED


def test_the_prompt_names_its_entries_and_its_first_turn() -> None:
    prompt = build(turns=[said("u1", "a1", [WHEN]), said("u2", "a2")], grounding=GROUNDING)
    assert (prompt.grounding, prompt.window_start) == ((WHEN, WHERE), "u1")
    assert build(grounding=GROUNDING).window_start is None


def test_the_system_texts_tokens_are_the_same_whatever_follows_it() -> None:
    """Some vocabularies have a token for a full stop with the end of its line."""

    def encode(text: str) -> list[int]:
        return TOKENIZER.encode_text(text.replace(".\n", "\0"))

    template = ChatTemplate(start_id=START, end_id=END, encode=encode, token_bytes=TOKENIZER.token_bytes)
    prompts = PromptBuilder(template, system="S.", most_turns=MOST_TURNS)
    text = [START, *encode("system\nS.")]
    for entries in ([], [WHEN]):
        prompt = prompts.build(turns=(), grounding=entries, question="q", max_tokens=1_000)
        assert prompt.ids[: len(text)] == text


@given(HOSTILE, HOSTILE, ENTRIES, TURNS)
def test_what_others_wrote_opens_no_role(
    question: str, system: str, grounding: list[Grounding], turns: list[Turn]
) -> None:
    prompt = build(question, system=system, grounding=grounding, turns=turns).ids
    expected = ["system"] if system else []
    standing = set[Grounding]()
    for needed in [*(turn.grounding for turn in turns), tuple(grounding)]:
        if not standing.issuperset(needed) and expected != ["system"]:
            expected.append("system")  # the first question's entries are in the opening
        standing.update(needed)
        expected += ["user", "assistant"]
    opened = [at for at, token_id in enumerate(prompt) if token_id == START]
    assert prompt.count(END) == len(opened) - 1
    assert not set(prompt) & {TOKENIZER.special_id("<|endoftext|>")}
    assert [role_at(prompt, at) for at in opened] == expected


def role_at(prompt: list[int], start: int) -> str:
    return TOKENIZER.decode_bytes(prompt[start : start + 12]).decode(errors="replace").partition("\n")[0]


# --- a prompt that is too long: the oldest turns are dropped, then entries, never a part of the question

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


# --- an answer appears in the prompt as its decoded tokens, as far as they spell the shown text

WORDS = {1_000: b"ab", 1_001: "你好".encode(), 1_002: "你".encode()[:2], 1_003: "你".encode()[2:] + b"!"}


def spelt(text: str, output_ids: Sequence[int]) -> list[int]:
    """Return the tokens that an earlier answer has in the next prompt. `WORDS` are tokens that the model can decode,
    but that `encode` never returns."""
    template = ChatTemplate(
        start_id=START,
        end_id=END,
        encode=TOKENIZER.encode_text,
        token_bytes=lambda token_id: WORDS.get(token_id) or TOKENIZER.token_bytes(token_id),
    )
    message = template.answered(text, tuple(output_ids))
    assert message[: len(template.answer)] == template.answer
    assert message[-len(template.end) :] == template.end
    return list(message[len(template.answer) : -len(template.end)])


def plain(text: str) -> list[int]:
    return TOKENIZER.encode_text(text)


def test_an_answer_stands_in_the_tokens_that_were_decoded() -> None:
    assert spelt("ab你好", [1_000, 1_001]) == [1_000, 1_001]
    assert spelt("ab你好", []) == plain("ab你好")


def test_of_an_answer_that_a_stop_string_ended_only_what_was_shown_stands() -> None:
    assert spelt("ab", [1_000, *plain("END")]) == [1_000]
    assert spelt("aba", [1_000, 1_000]) == [1_000, *plain("a")]
    assert spelt("ab你", [1_000, 1_001]) == [1_000, *plain("你")]
    assert spelt("ab你", [1_000, 1_002, 1_003]) == [1_000, *plain("你")]  # the stop string was "!"


def test_tokens_that_spell_another_text_are_not_used() -> None:
    assert spelt("no", [1_000]) == plain("no")
    assert spelt("no", [10**6]) == plain("no")
    assert spelt("ab", [START, 1_000]) == plain("ab")
    assert spelt("ab", [1_000, END]) == [1_000]


@given(HOSTILE, PLANTED_IDS | OUTPUT_IDS)
def test_whatever_the_record_says_the_answers_text_is_spelt(text: str, output_ids: tuple[int, ...]) -> None:
    ids = spelt(text, output_ids)
    assert all(map(TOKENIZER.token_bytes, ids))
    assert shown_text(b"".join(WORDS.get(each) or TOKENIZER.token_bytes(each) for each in ids)) == text
