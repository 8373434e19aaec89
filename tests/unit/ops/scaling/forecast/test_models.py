"""The forecasts by name: calibrated on what they have seen, and on nothing that was not recorded."""

from math import isnan, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.scaling.forecast.models import DEFAULT, MODELS, make
from shared.errors import SettingsError


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), quantile=st.sampled_from([0.5, 0.8, 0.9]), steps=st.integers(1, 4))
def test_as_many_bins_stay_below_the_bound_as_were_asked_for(name: str, seed: int, quantile: float, steps: int) -> None:
    random = Random(seed)
    values = [100 * random.lognormvariate(0, 0.3) for _ in range(1_200)]
    forecaster, below, bounds = make(name), [], []
    for number, value in enumerate(values):
        if number >= 400 + steps:
            below.append(value <= bounds[-steps])
        forecaster.observe(value)
        bounds.append(forecaster.upper(steps, quantile))
    assert sum(below) / len(below) == pytest.approx(quantile, abs=0.04)


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
    early, late = make(name), make(name)
    early.upper(2, 0.9)
    for _ in range(500):
        value = random.uniform(50, 100)
        early.observe(value)
        late.observe(value)
    assert early.upper(2, 0.9) == late.upper(2, 0.9)


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


def test_the_default_is_one_of_the_models_and_others_are_refused() -> None:
    assert make().name == DEFAULT
    with pytest.raises(SettingsError, match=r"forecast 'arima': unknown; one of last"):
        make("arima")
