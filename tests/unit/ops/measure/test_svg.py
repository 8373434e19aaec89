"""The axes of a plot cover their values."""

import pytest

from ops.measure.svg import linear, logarithmic


@pytest.mark.parametrize("most", [0.003, 0.7, 1.0, 16.0, 1_234.0])
def test_a_linear_axis_covers_its_values_with_few_marks(most: float) -> None:
    """From zero to at least the greatest."""
    axis = linear("", [most])
    assert axis.low == 0.0
    assert axis.high >= most * 0.999
    assert 2 <= len(axis.ticks) <= 7


@pytest.mark.parametrize("values", [[5.0], [0.5, 10.0], [1.0, 2_000_000.0]])
def test_a_logarithmic_axis_has_marks_whatever_its_values(values: list[float]) -> None:
    """Also for a single one."""
    axis = logarithmic("", values)
    assert axis.ticks
    assert all(0 <= axis.share(value) <= 1 for value in values)
