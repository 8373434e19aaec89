"""Percentiles are measured values."""

from hypothesis import given
from hypothesis import strategies as st

from ops.measure.quantiles import Quantiles, percentile, quantiles

VALUES = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=200)


@given(values=VALUES, share=st.floats(min_value=0.001, max_value=1))
def test_a_percentile_is_a_measured_value_that_the_share_is_not_above(values: list[float], share: float) -> None:
    """Nearest rank: no value is made up between two."""
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9


def test_nothing_measured_has_no_quantiles() -> None:
    """None, not zero: a zero would look like a good latency."""
    assert quantiles([]) == Quantiles(p50=None, p95=None, p99=None)


def test_of_one_to_a_hundred_p99_is_ninety_nine() -> None:
    """The textbook's example."""
    assert quantiles(range(1, 101)) == Quantiles(p50=50, p95=95, p99=99)
