"""The forecast is calibrated on recorded values, and learns nothing from a bin that was not recorded."""

from math import isnan, nan
from random import Random

import pytest

from ops.scaling.forecast.conformal import UpperBound
from ops.scaling.forecast.demand_forecast import DemandForecast
from ops.traces.recorded import read_series

_NUM_BINS = 900


def uniform(num_values: int = _NUM_BINS) -> list[float]:
    random = Random(1)
    return [random.uniform(50, 100) for _ in range(num_values)]


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_as_many_bins_stay_below_the_bound_as_were_asked_for(quantile: float) -> None:
    random, forecast = Random(1), DemandForecast(bin_s=600)
    below, bounds = [], list[float]()
    for number in range(1_200):
        value = 100 * random.lognormvariate(0, 0.3)
        if number >= 800:
            below.append(value <= bounds[-2])
        forecast.observe(value)
        bounds.append(forecast.upper(2, quantile))
    assert sum(below) / len(below) == pytest.approx(quantile, abs=0.04)


def test_nothing_is_known_before_enough_bins() -> None:
    forecast = DemandForecast()
    for value in uniform(720):
        assert isnan(forecast.upper(1, 0.9))
        forecast.observe(value)
    forecast.observe(75.0)
    assert 80 < forecast.upper(1, 0.9) < 120


def test_a_gap_is_not_learned_as_zero() -> None:
    gapped = DemandForecast()
    for number, value in enumerate(uniform()):
        gapped.observe(nan if number % 10 == 9 else value)
    assert 80 < gapped.upper(1, 0.9) < 120


def test_a_bound_that_is_first_asked_for_late_has_learned_from_the_values_before() -> None:
    late = DemandForecast()
    for value in uniform():
        late.observe(value)
    assert 80 < late.upper(2, 0.9) < 160


def test_the_bound_is_lower_at_hours_that_are_calm() -> None:
    random, forecast = Random(1), DemandForecast(bin_s=600)
    calm_bounds, wild_bounds = list[float](), list[float]()
    for number in range(1_100):
        calm = number % 144 < 72
        forecast.observe(100 * random.lognormvariate(0, 0.02 if calm else 0.5))
        if number >= 800 and number % 72 >= 6:
            (calm_bounds if calm else wild_bounds).append(forecast.upper(1, 0.9))
    assert sum(calm_bounds) / len(calm_bounds) < 0.8 * sum(wild_bounds) / len(wild_bounds)


@pytest.mark.parametrize("value", [0.0, nan])
def test_no_demand_is_expected_to_grow(value: float) -> None:
    forecast = DemandForecast()
    for _ in range(_NUM_BINS):
        forecast.observe(value)
    assert isnan(forecast.upper(1, 0.9))


def test_a_burst_after_little_demand_does_not_raise_the_bound_a_hundredfold() -> None:
    values = [value or 0.0 for value in read_series("azure-code").values]
    bound, uppers = UpperBound(6, 0.9), []
    for value in values:
        bound.settle(value)
        bound.promise(value)
        uppers.append(bound.upper)
    assert max(uppers) < 10 * max(values)
