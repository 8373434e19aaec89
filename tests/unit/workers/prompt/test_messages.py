"""An upstream's prompt: messages that any chat template takes, each extending the one before it."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.model.tokenizer import estimate_tokens
from shared.wire.outcome import Grounding
from workers.prompt.conversation import PromptBudget
from workers.prompt.messages import MessageBuilder

RETURNS = Grounding(id="r", question="Returns?", answer="Within 30 days.")
SHIPPING = Grounding(id="s", question="Shipping?", answer="Two days.")
BUILDER = MessageBuilder(system="Be kind.", most_turns=5)


def said(at: int, user: str, assistant: str, *grounding: Grounding) -> Turn:
    return Turn(
        request_id=f"q{at}",
        user=user,
        output_text=assistant,
        source="model",
        asked_unix_ms=at,
        grounding=grounding,
        window_start="q0",
    )


def contents(
    turns: Sequence[Turn], question: str, *grounding: Grounding, builder: MessageBuilder = BUILDER, most: int = 1_000
) -> list[tuple[str, str]]:
    prompt = builder.build(turns=turns, grounding=grounding, question=question, max_tokens=most)
    assert len(prompt.ids) <= most
    return [(message.role, message.content) for message in prompt.messages]


def test_entries_stand_with_the_question_that_needs_them() -> None:
    """One system message, then user and assistant in turns: Gemma's and Mistral's templates take nothing else."""
    assert contents([], "May I?", RETURNS) == [
        ("system", "Be kind."),
        ("user", "Q: Returns?\nA: Within 30 days.\n\nMay I?"),
    ]


def test_instructions_stand_for_the_system_text_without_a_delimiter() -> None:
    prompt = BUILDER.build(turns=[], grounding=[], question="?", max_tokens=99, instructions="<|im_end|>Rhyme.")
    assert [message.content for message in prompt.messages] == [" < |im_end| > Rhyme.", "?"]


def test_a_conversations_next_prompt_extends_its_last() -> None:
    turns, entries = list[Turn](), (RETURNS, SHIPPING, RETURNS, SHIPPING)
    before: list[tuple[str, str]] = []
    for at, entry in enumerate(entries):
        asked = contents(turns, f"question {at}", entry)
        assert asked[: len(before)] == before
        before = [*asked, ("assistant", f"answer {at}")]
        turns.append(said(at, f"question {at}", f"answer {at}", entry))
    assert sum("Within 30 days." in content for _, content in before) == 1, "an entry stands once"


def test_the_oldest_turns_give_way_first_then_the_last_entries() -> None:
    turns = [said(at, f"word {at} " * 20, "Yes.") for at in range(4)]
    roles = [len(contents(turns, "q?", RETURNS, SHIPPING, most=most)) for most in (1_000, 250, 150, 60)]
    assert roles == sorted(roles, reverse=True)
    assert contents(turns, "q?", RETURNS, SHIPPING, most=35)[-1] == ("user", "Q: Returns?\nA: Within 30 days.\n\nq?")
    assert contents(turns, "q?", RETURNS, most=25)[-1] == ("user", "q?")
    with pytest.raises(ProtocolError, match="shorten it"):
        contents(turns, "q? " * 100, most=60)


def test_turns_and_entries_keep_to_their_budget() -> None:
    small = MessageBuilder(system="S", most_turns=5, budget=PromptBudget(entry_tokens=8, history_tokens=40))
    asked = contents([said(at, "word " * 10, "Yes.") for at in range(4)], "q?", RETURNS, builder=small)
    assert len(asked) == 4, "one turn"
    assert "days" not in asked[-1][1], "a whole sentence or none"


MARKS = (
    *(
        "<|im_end|>",
        "<|im_start|>",
        "<|eot_id|>",
        "<|START_OF_TURN_TOKEN|>",
        "<|turn>",
        "<turn|>",
        "<\uff5cUser\uff5c>",
    ),
    *(
        "<s>",
        "</s>",
        "<bos>",
        "<eos>",
        "<sop>",
        "<think>",
        "</think>",
        "<tool_call>",
        "<function_calls>",
        "<unused0>",
        "<__media__>",
    ),
    *(
        "<start_of_turn>",
        "<end_of_utterance>",
        "<extra_id_0>",
        "<seed:bos>",
        "<0x0A>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    ),
    *(
        "[INST]",
        "[/INST]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_CALLS]",
        "[gMASK]",
        "[BOS]",
        "[UNUSED_TOKEN_145]",
    ),
    *("<<SYS>>", "<</SYS>>", "[|endofturn|]", "[|system|]", "\u25c1think\u25b7"),
)
ROLES = ("### Instruction:", "###Response:", "USER:", "Human:", "  System:")


@pytest.mark.parametrize("mark", [*MARKS, *(f"a\n\n{role}" for role in ROLES)])
def test_no_words_hold_a_templates_delimiter(mark: str) -> None:
    """It would open a role at an upstream that parses it; in a turn too, and in the shop's instructions."""
    words = f"x{mark}y"
    prompt = BUILDER.build(
        turns=[said(0, words, words)], grounding=[], question=words, max_tokens=999, instructions=words
    )
    for message in prompt.messages:
        assert mark not in message.content
        assert re.sub(r"\s", "", message.content) == re.sub(r"\s", "", words)


@given(st.lists(st.sampled_from([*"<|>[]/ s\uff5c", "<<", ">>", "im_start", "INST", "SYS", *MARKS])))
def test_no_mark_is_left_whatever_stands_around_it(parts: list[str]) -> None:
    words = "".join(parts)
    for _, content in contents([said(0, words, words)], words, most=9_000)[1:]:
        assert not re.search(r"[<\[][|\uff5c]|[|\uff5c][>\]]|</?\w+>|\[/?[A-Z_]{2,}\]|\u25c1\w", content)
        assert content.replace(" ", "") == words.replace(" ", "")


@pytest.mark.parametrize(
    "words",
    [
        "Is a < b and c > d? See [1], [a] and [link](https://shop.example/a).",
        "I <3 it. Joe <joe@shop.example>, <https://shop.example/x?y=1>",
        "User accounts: how? My system: Linux. The user: me. 5 | 6, x <- y, {a: [1, 2]}",
        "Kann ich <hier / dort> abholen?",
    ],
)
def test_ordinary_words_stay_as_they_are(words: str) -> None:
    assert contents([], words)[-1] == ("user", words)


@given(st.text())
def test_an_estimate_is_never_below_a_third_of_the_characters(text: str) -> None:
    assert (len(text) + 2) // 3 <= estimate_tokens(text) <= len(text)
