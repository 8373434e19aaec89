"""Predicted answer lengths: the quantiles of the observed lengths, also if many answers were cut."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.schedule.lengths import MIN_OBSERVED, OutputLengths, prior_quantile

QUANTILES = st.floats(0.001, 0.999)
ANSWERS = st.lists(st.tuples(st.integers(0, 6_000), st.booleans()), max_size=120)
LIMITS = st.integers(1, 5_000)


def learned(answers: list[tuple[int, bool]], *, memory: int = 500) -> OutputLengths:
    lengths = OutputLengths(memory=memory)
    for output_tokens, ended in answers:
        lengths.observe("short", output_tokens, ended_by_itself=ended)
    return lengths


def quantile_of(values: list[int], quantile: float) -> int:
    return sorted(values)[int(quantile * len(values))]


# --- observed lengths


@given(length=st.integers(1, 31), quantile=st.floats(0.1, 0.9), count=st.integers(MIN_OBSERVED, 200))
def test_answers_all_alike_are_predicted_exactly(length: int, quantile: float, count: int) -> None:
    lengths = learned([(length, True)] * count)
    assert lengths.predict("short", 512, quantile) == length


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.75, 0.9])
def test_cut_answers_do_not_pull_the_prediction_down(quantile: float) -> None:
    """Cut anywhere from 30 tokens on: the whole lengths are found all the same."""
    random = Random(2)
    whole = [max(1, round(random.lognormvariate(4, 0.6))) for _ in range(3_000)]
    cuts = [random.choice((30, 60, 160, 512)) for _ in whole]
    answers = [(min(length, cut), length < cut) for length, cut in zip(whole, cuts, strict=True)]
    lengths = learned(answers, memory=1_000_000)
    assert lengths.predict("short", 4_096, quantile) == pytest.approx(quantile_of(whole, quantile), rel=0.08)


@pytest.mark.parametrize("generated", [1, 20, 50, 100])
def test_what_is_still_to_come_is_learned_from_those_that_got_as_far(generated: int) -> None:
    random = Random(3)
    seen = [max(1, round(random.lognormvariate(4, 0.6))) for _ in range(5_000)]
    lengths = learned([(length, True) for length in seen], memory=1_000_000)
    further = [length - generated for length in seen if length > generated]
    predicted = lengths.remaining("short", generated, 4_096, 0.5)
    assert predicted == pytest.approx(quantile_of(further, 0.5), rel=0.1, abs=2)


@pytest.mark.parametrize(("generated", "remaining"), [(28, 2), (29, 1), (30, 470), (31, 469), (32, 468)])
def test_beyond_the_longest_that_is_told_apart_the_whole_limit_is_expected(generated: int, remaining: int) -> None:
    lengths = OutputLengths(longest=30)
    for _ in range(100):
        lengths.observe("short", 31, ended_by_itself=True)
    assert lengths.remaining("short", generated, 500, 0.5) == remaining


def test_a_prediction_that_was_asked_for_before_follows_what_is_seen_later() -> None:
    lengths = learned([(30, True)] * 100, memory=50)
    assert lengths.remaining("short", 10, 512, 0.5) == 20
    for _ in range(300):
        lengths.observe("short", 25, ended_by_itself=True)
    assert lengths.remaining("short", 10, 512, 0.5) == 15


def test_an_answer_weighs_less_with_each_that_follows() -> None:
    """The weight is 1/e after `memory` further answers; the weights grow and are rescaled repeatedly during the
    test."""
    memory, lengths = 5, OutputLengths(memory=5)
    for number in range(400):
        lengths.observe("short", 1 + number % 30, ended_by_itself=number % 2 == 0)
        known = lengths._classes["short"]
        for back in range(min(number, 2 * memory)):
            counts = known.cut if (number - back) % 2 else known.ended
            assert counts[(number - back) % 30] / known.weight == pytest.approx(math.exp(-back / memory), rel=0.003)


def test_the_class_longest_without_an_answer_makes_room() -> None:
    lengths = learned([(10, True)] * 50)
    for number in range(255):
        lengths.observe(str(number), 5, ended_by_itself=True)
    lengths.observe("short", 10, ended_by_itself=True)
    lengths.observe("one more", 5, ended_by_itself=True)
    assert lengths.predict("short", 512, 0.5) == 10
    assert len(lengths._classes) == 256
    assert "0" not in lengths._classes


# --- before enough was seen


def test_until_enough_answers_are_known_half_or_all_of_the_limit_is_expected() -> None:
    lengths = learned([(10, True)] * (MIN_OBSERVED - 1))
    assert lengths.predict("short", 160, 0.5) == 80
    assert lengths.predict("short", 160, 0.9) == 160
    assert lengths.remaining("short", 60, 160, 0.5) == 50
    assert not lengths.knows("short")
    lengths.observe("short", 10, ended_by_itself=True)
    assert lengths.knows("short")
    assert lengths.predict("short", 160, 0.5) == 10


@given(limit=LIMITS, quantile=QUANTILES)
def test_the_prior_is_conservative(limit: int, quantile: float) -> None:
    assert 1 <= prior_quantile(limit, quantile) <= limit
    assert prior_quantile(limit, quantile) >= min(quantile, 1.0) * limit * 0.999
    assert OutputLengths().predict("unknown", limit, quantile) == prior_quantile(limit, quantile)


# --- for any observations


@given(answers=ANSWERS, limit=LIMITS, generated=st.integers(0, 6_000), quantiles=st.tuples(QUANTILES, QUANTILES))
def test_predictions_stay_within_the_limit_and_rise_with_the_quantile_and_what_is_written(
    answers: list[tuple[int, bool]], limit: int, generated: int, quantiles: tuple[float, float]
) -> None:
    """Writing on never makes the predicted end come earlier."""
    lengths, (low, high) = learned(answers), sorted(quantiles)
    assert 1 <= lengths.predict("short", limit, low) <= limit
    remaining = lengths.remaining("short", generated, limit, low)
    assert (1 <= remaining <= limit - generated) if generated < limit else remaining == 0
    assert lengths.remaining("short", limit, limit, low) == 0
    assert remaining <= lengths.remaining("short", generated, limit, high)
    ends = [written + lengths.remaining("short", written, 8_192, low) for written in range(generated, generated + 20)]
    assert ends == sorted(ends)
