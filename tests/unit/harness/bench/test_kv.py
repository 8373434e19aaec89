"""The numbers of `replyline bench kv`: what counts as the model's, rounds of like size, and options told together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from tests.bench.kv.client import Answered, Conversed
from tests.bench.kv.conversations import Conversation, choose, load_conversations
from tests.bench.kv.program import KvOptions, figures_of, parts


def answer(**given: object) -> Answered:
    told = {"ttft_ms": 100.0, "prefill_ms": 60.0, "prompt_tokens": 300, "cached_tokens": 200, "by_model": True}
    return Answered(**(told | given))  # type: ignore[arg-type]


def test_only_whole_answers_of_the_model_count_as_answered() -> None:
    """A fallback, a refusal and an answer that was cut are failed; their prompts were computed all the same."""
    done = Conversed(
        elapsed_s=2.0,
        answers=[
            answer(),
            answer(ttft_ms=300.0),
            answer(by_model=False),
            *[answer(by_model=False, prompt_tokens=0, cached_tokens=0)] * 2,
        ],
    )
    assert done.figures() == {
        "answers_per_s": 1.0,
        "ttft_p50_ms": 200.0,
        "prompt_tokens": 900,
        "computed_tokens": 300,
        "failed": 3,
    }


def test_turn_five_is_told_by_its_medians() -> None:
    figures = figures_of([answer(), answer(ttft_ms=None, cached_tokens=100), answer(ttft_ms=140.0)])
    assert (figures["ttft_ms"], figures["prefill_ms"], figures["computed_tokens"]) == (120.0, 60.0, 100.0)
    assert figures["failed"] == 0


@given(count=st.integers(1, 40), rounds=st.integers(1, 10))
def test_each_conversation_is_in_one_round_and_rounds_are_alike(count: int, rounds: int) -> None:
    every = [Conversation(id=str(number), language="en", turns=("?",)) for number in range(count)]
    found = parts(every, rounds)
    assert [one for part in found for one in part] == every
    assert len(found) == rounds
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_a_round_has_both_languages() -> None:
    assert [{one.language for one in part} for part in parts(choose(load_conversations(), 24), 3)] == [{"en", "zh"}] * 3


def test_wrong_options_are_told_together() -> None:
    options = KvOptions(conversations=2, clients=8, max_output_tokens=16, kinds=("down",), peer="http://127.0.0.1:1")
    with pytest.raises(SettingsError) as told:
        options.check(rounds=3)
    assert [fault.split(":")[0] for fault in str(told.value).splitlines()] == [
        "--cells down",
        "--rounds 3",
        "--peer http",
    ]
    with pytest.raises(SettingsError, match="--peer ftp://x: write the address of a llama-server"):
        KvOptions(conversations=8, clients=8, max_output_tokens=16, kinds=("whole",), peer="ftp://x").check(rounds=1)
