"""Golden prompts are asked of a loaded engine; another engine's answers are refused."""

import pytest

from shared.versions.golden import Golden, GoldenSet
from workers.engine.fake import FakeEngine
from workers.engine.greedy import answer_greedily, golden_failure

PROMPTS = [tuple(range(2, 2 + length)) for length in (3, 9, 20)]


def engine() -> FakeEngine:
    return FakeEngine(num_slots=2, max_length=64)


def golden_of(answers: list[list[int]]) -> GoldenSet:
    pairs = zip(PROMPTS, answers, strict=True)
    return GoldenSet(engine="fake", prompts=tuple(Golden(prompt_ids=ids, output_ids=tuple(a)) for ids, a in pairs))


def test_the_same_engine_answers_its_golden_prompts_again() -> None:
    assert golden_failure(engine(), golden_of([answer_greedily(engine(), [ids], 8)[0] for ids in PROMPTS])) is None


@pytest.mark.parametrize("shift", [1, 7])
def test_other_tokens_are_a_failure_that_says_how_many_agree(shift: int) -> None:
    answers = [answer_greedily(engine(), [ids], 8)[0] for ids in PROMPTS]
    other = golden_of([[token + shift for token in answer] for answer in answers])
    assert golden_failure(engine(), other) == "golden prompts: 0.00 of the tokens agree, 0.8 are needed"
