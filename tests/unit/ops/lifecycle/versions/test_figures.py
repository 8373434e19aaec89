"""A version fails where it is worse than the champion by more than chance."""

from hypothesis import given
from hypothesis import strategies as st

from ops.lifecycle.versions.figures import failures

SHARES = st.floats(0, 1)
COUNTS = st.integers(1, 400).map(float)


def figures(name: str, share: float, n: float) -> dict[str, float]:
    return {name: share, f"{name}.n": n}


def test_a_clear_drop_is_named_and_a_small_or_uncertain_one_is_not() -> None:
    champion = figures("en_right", 0.95, 160)
    assert failures(figures("en_right", 0.6, 160), champion) == ["en_right is 0.600, the champion's 0.950"]
    assert failures(figures("en_right", 0.92, 160), champion) == []
    assert failures(figures("en_right", 0.8, 5), champion) == []


def test_more_invention_is_worse_and_less_is_not() -> None:
    few, many = figures("invented_by_model", 0.0, 100), figures("invented_by_model", 0.3, 100)
    assert failures(many, few)
    assert failures(few, many) == []


def test_what_one_of_them_lacks_is_not_compared() -> None:
    assert failures(figures("en_right", 0.1, 100), figures("zh_right", 0.9, 100)) == []
    assert failures(figures("en_right", 0.1, 100), {"en_right": 0.9}) != []


@given(SHARES, COUNTS)
def test_nobody_is_worse_than_itself(share: float, n: float) -> None:
    assert failures(figures("en_right", share, n), figures("en_right", share, n)) == []


@given(SHARES, SHARES, COUNTS, COUNTS)
def test_of_two_at_most_one_is_worse(one: float, other: float, one_n: float, other_n: float) -> None:
    ours, theirs = figures("zh_right", one, one_n), figures("zh_right", other, other_n)
    assert not (failures(ours, theirs) and failures(theirs, ours))
