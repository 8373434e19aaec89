"""An open loop's schedule is fixed beforehand, keeps its rate and is the same again for the same seed."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.measure.arrivals import Arrivals, schedule

RATES = st.floats(min_value=0.1, max_value=10_000)
COUNTS = st.integers(min_value=0, max_value=500)


@given(kind=st.sampled_from(["poisson", "even"]), rate=RATES, count=COUNTS, seed=st.integers())
def test_times_ascend_from_the_start_and_there_are_as_many_as_asked(
    kind: Arrivals, rate: float, count: int, seed: int
) -> None:
    """Each request has one time, none before the start, none before the one before it."""
    times = schedule(kind, rate=rate, count=count, seed=seed)
    assert len(times) == count
    assert times == sorted(times)
    assert all(time >= 0 for time in times)


def test_poisson_arrivals_keep_their_rate() -> None:
    """Ten thousand at 200 a second take about fifty seconds, and the gaps vary as exponential ones do."""
    times = schedule("poisson", rate=200, count=10_000, seed=1)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert times[-1] == pytest.approx(50, rel=0.05)
    assert spread == pytest.approx(mean, rel=0.05)
