"""A prompt is what the chat template wants, and lets nobody write a role but the service."""

from hypothesis import given

from shared.conversation.turn import Turn
from shared.wire.messages import Grounding
from tests.support.samples.prompts import (
    END,
    ENTRIES,
    GROUNDING,
    HOSTILE,
    MOST_TURNS,
    START,
    TOKENIZER,
    TURNS,
    WHEN,
    WHERE,
    build,
    readable,
    said,
)
from workers.prompt.conversation import ChatTemplate, PromptBuilder

ASKED = "⟨user\nq?⟩\n⟨assistant\n"


def test_entries_stand_before_the_question_that_needed_them_first() -> None:
    turns = [said("u1", "a1", [WHEN]), said("u2", "a2", [WHEN]), said("u3", "a3")]
    assert readable(build(turns=turns, grounding=GROUNDING).ids) == (
        "⟨system\nS\n\nQ: When?\nA: Soon.⟩\n⟨user\nu1⟩\n⟨assistant\na1⟩\n"
        "⟨user\nu2⟩\n⟨assistant\na2⟩\n"
        "⟨user\nu3⟩\n⟨assistant\na3⟩\n"
        "⟨system\nQ: Where?\nA: Here.⟩\n" + ASKED
    )


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
            expected.append("system")  # the first question's stand in the opening
        standing.update(needed)
        expected += ["user", "assistant"]
    opened = [at for at, token_id in enumerate(prompt) if token_id == START]
    assert prompt.count(END) == len(opened) - 1
    assert not set(prompt) & {TOKENIZER.special_id("<|endoftext|>")}
    assert [role_at(prompt, at) for at in opened] == expected


def role_at(prompt: list[int], start: int) -> str:
    return TOKENIZER.decode_bytes(prompt[start : start + 12]).decode(errors="replace").partition("\n")[0]
