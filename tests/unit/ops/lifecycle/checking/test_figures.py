"""A version fails if it is not good enough by itself, or worse than the champion by more than chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lifecycle.checking.figures import LEAST_QUESTIONS, below_floor, shares_of, worse

FIGURES = ("en_right", "zh_right", "unanswerable_right", "small_talk_right", "invented_by_model")
DIGITS = st.sampled_from("01-")
PAIRS = st.lists(st.tuples(DIGITS, DIGITS), min_size=1, max_size=60)


def answered(good: int, bad: int) -> str:
    return "1" * good + "0" * bad


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize(
    ("n", "lost", "won", "fails"),
    [
        (20, 4, 0, True),
        (20, 3, 0, False),
        (20, 4, 1, False),
        (20, 5, 1, True),
        (20, 12, 8, True),
        (20, 11, 8, False),
        (6, 3, 0, False),
        (6, 4, 0, True),
        (24, 4, 0, True),
        (60, 4, 0, True),
        (60, 3, 0, False),
        (120, 7, 0, True),
        (120, 5, 0, False),
        (120, 14, 8, False),
    ],
)
def test_a_version_fails_by_the_questions_that_it_alone_answers_badly(
    figure: str, n: int, lost: int, won: int, fails: bool
) -> None:
    """Of 20 questions three more may be lost than won, however many change; the exact test allowed four."""
    same = answered(n - lost - won, 0)
    ours, champions = f"{same}{answered(won, lost)}", f"{same}{'0' * won}{'1' * lost}"
    found = worse({figure: ours}, {figure: champions})
    assert [line.split(" is ")[0] for line in found] == ([figure] if fails else [])


@pytest.mark.parametrize("n", [LEAST_QUESTIONS, 61, 79, 80, 99, 120])
def test_the_smallest_set_shows_a_loss_of_more_than_five_points_in_all_figures_together(n: int) -> None:
    """Spread over four figures, of which none alone shows it."""
    lost = n // 20 + 1
    ours, champions = dict[str, str](), dict[str, str]()
    for number, figure in enumerate(FIGURES[:4]):
        size = n // 4 + (number < n % 4)
        bad = lost // 4 + (number < lost % 4)
        ours[figure], champions[figure] = answered(size - bad, bad), answered(size, 0)
    assert worse(ours, champions) == [f"right is {1 - lost / n:.3f}, the champion's 1.000"]
    assert worse(champions, ours) == []


def test_more_invention_is_worse_and_what_the_model_did_not_write_is_left_out() -> None:
    few, many = "1" * 90 + "-" * 10, "0" * 30 + "1" * 60 + "0" * 10
    assert worse({"invented_by_model": many}, {"invented_by_model": few}) == [
        "invented_by_model is 0.400, the champion's 0.000"
    ]
    assert worse({"invented_by_model": few}, {"invented_by_model": many}) == []
    assert shares_of({"invented_by_model": few}) == {"invented_by_model": 0.0, "invented_by_model.n": 90.0}


@pytest.mark.parametrize(
    ("outcomes", "failing"),
    [
        ({"en_right": answered(0, 96)}, ["en_right", "right"]),
        ({"en_right": answered(90, 6), "zh_right": answered(10, 86)}, ["zh_right"]),
        ({"small_talk_right": answered(9, 11)}, ["right"]),
        ({"en_right": answered(48, 48), "invented_by_model": answered(0, 9)}, []),
    ],
)
def test_a_first_version_is_held_to_a_floor(outcomes: dict[str, str], failing: list[str]) -> None:
    assert [line.split(" is ")[0] for line in below_floor(outcomes, 0.5)] == failing
    assert below_floor(outcomes, 0.0) == []


@given(PAIRS)
def test_of_two_at_most_one_is_worse_and_nobody_than_itself(pairs: list[tuple[str, str]]) -> None:
    ours, theirs = ({"zh_right": "1" + "".join(digits)} for digits in zip(*pairs, strict=True))
    assert not (worse(ours, theirs) and worse(theirs, ours))
    assert worse(ours, ours) == []
