"""An answer stands in the next prompt in the tokens that were decoded, as far as they spell what was shown."""

from collections.abc import Sequence

from hypothesis import given

from tests.support.samples.prompts import END, HOSTILE, OUTPUT_IDS, PLANTED_IDS, START, TOKENIZER
from workers.answer.detokenizer import shown_text
from workers.prompt.conversation import ChatTemplate

WORDS = {1_000: b"ab", 1_001: "你好".encode(), 1_002: "你".encode()[:2], 1_003: "你".encode()[2:] + b"!"}


def spelt(text: str, output_ids: Sequence[int]) -> list[int]:
    """The tokens of an answer in the next prompt, where the model has words that `encode` does not use."""
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
