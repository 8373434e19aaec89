"""The least of times that fall with the clock, each to a floor of its own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.soonest import Soonest

NAMES = st.sampled_from("abcdefgh")
MS = st.integers(0, 40).map(float)
CHANGES = st.lists(st.tuples(NAMES, st.none() | st.tuples(MS, MS)), max_size=30)


@settings(max_examples=500)
@given(CHANGES, MS, st.sets(NAMES))
def test_it_is_the_least_of_those_that_count(
    changes: list[tuple[str, tuple[float, float] | None]], now: float, silent: set[str]
) -> None:
    soonest, times = Soonest(), dict[str, tuple[float, float]]()
    for name, change in changes:
        if change is None:
            times.pop(name, None)
            soonest.remove(name)
        else:
            times[name] = change
            soonest.put(name, *change)
    left = {name: max(floor, end - now) for name, (floor, end) in times.items() if name not in silent}
    found = soonest.least(now, counts=lambda name: name not in silent)
    assert (found is None) == (not left)
    assert found is None or left[found] == min(left.values())


class Watched(float):
    """A clock that counts how often something is reckoned by it."""

    looks = 0

    def __rsub__(self, end: float) -> float:
        self.looks += 1
        return end - float(self)


@pytest.mark.parametrize("apart_ms", [1.0, 0.0])
def test_where_the_front_decides_the_rest_is_not_looked_at(apart_ms: float) -> None:
    """A hundred workers that have nothing waiting, one of them the quickest, or all alike."""
    soonest, asked, now = Soonest(), list[str](), Watched(1_000.0)
    for number in range(100):
        soonest.put(f"w{number:02}", 10.0 + number * apart_ms, 10.0 + number)
    assert soonest.least(now, counts=lambda name: bool(asked.append(name)) or True) == "w00"
    assert len(asked) == 1
    assert now.looks < 5
