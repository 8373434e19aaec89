"""The forecasts by name: calibrated on what they have seen, and on nothing that was not recorded."""

from math import isnan, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.scaling.forecast.models import DEFAULT, MODELS, make
from ops.traces.recorded import read_series
from shared.errors import SettingsError

QUICK = ("last", "damped", "day")


def share_below(name: str, seed: int, quantile: float, steps: int) -> float:
    """Return the share of exchangeable values that stay below their bounds, after the first 400."""
    random = Random(seed)
    forecaster, below, bounds = make(name, bin_s=600), [], []
    for number in range(1_200):
        value = 100 * random.lognormvariate(0, 0.3)
        if number >= 400 + steps:
            below.append(value <= bounds[-steps])
        forecaster.observe(value)
        bounds.append(forecaster.upper(steps, quantile))
    return sum(below) / len(below)


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), quantile=st.sampled_from([0.5, 0.8, 0.9]), steps=st.integers(1, 4))
def test_as_many_bins_stay_below_the_bound_as_were_asked_for(name: str, seed: int, quantile: float, steps: int) -> None:
    assert share_below(name, seed, quantile, steps) == pytest.approx(quantile, abs=0.04)


@pytest.mark.parametrize("name", ["linear", "conditional"])
def test_fitted_models_are_calibrated_too(name: str) -> None:
    assert share_below(name, 1, 0.9, 2) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("name", MODELS)
@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=60))
def test_a_bin_that_was_not_recorded_is_never_learned(name: str, values: list[float]) -> None:
    """The values are the same with and without gaps between them: the point forecast then is the same."""
    whole, gapped = make(name), make(name)
    for value in values:
        whole.observe(value)
        gapped.observe(nan)
        gapped.observe(value)
    gapped.observe(nan)
    assert gapped.expected(1) == pytest.approx(whole.expected(1))
    assert gapped.upper(1, 0.9) >= 0


@pytest.mark.parametrize("name", MODELS)
def test_a_bound_that_is_asked_for_late_has_learned_from_what_was_before(name: str) -> None:
    random = Random(1)
    late = make(name)
    for _ in range(900):
        late.observe(random.uniform(50, 100))
    assert 80 < late.upper(2, 0.9) < 160


def test_a_quantile_of_its_own_knows_when_it_is_calm() -> None:
    """Half of each day is wild. A bound for all hours alike asks for the same headroom in both."""
    random = Random(1)
    conditional, damped = make("conditional", bin_s=600), make("damped")
    rooms: list[float] = []
    for number in range(1_100):
        calm = number % 144 < 72
        value = 100 * random.lognormvariate(0, 0.02 if calm else 0.5)
        for forecaster in (conditional, damped):
            forecaster.observe(value)
        if number >= 800 and calm and number % 72 >= 6:
            rooms.append(conditional.upper(1, 0.9) / damped.upper(1, 0.9))
    assert sum(rooms) / len(rooms) < 0.8


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_expected_before_the_first_value(name: str) -> None:
    forecaster = make(name)
    forecaster.observe(nan)
    assert isnan(forecaster.expected(1))
    assert isnan(forecaster.upper(1, 0.9))


@pytest.mark.parametrize("name", MODELS)
def test_zeros_are_values(name: str) -> None:
    forecaster = make(name)
    for _ in range(50):
        forecaster.observe(0.0)
    assert forecaster.upper(1, 0.9) == 0.0


def test_a_burst_out_of_nearly_nothing_is_not_feared_a_hundred_times_as_large() -> None:
    values = [value or 0.0 for value in read_series("azure-code").values]
    forecaster, uppers = make("damped", bin_s=10), []
    for value in values:
        forecaster.observe(value)
        uppers.append(forecaster.upper(6, 0.9))
    assert max(uppers) < 10 * max(values)


def test_the_default_is_one_of_the_models_and_others_are_refused() -> None:
    assert make().name == DEFAULT
    with pytest.raises(SettingsError, match=r"forecast 'arima': unknown; one of last"):
        make("arima")
