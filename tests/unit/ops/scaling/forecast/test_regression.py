"""The regressions find what the numbers were made with."""

import numpy as np
import pytest

from ops.scaling.forecast.regression import fit_quantile


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_quantile_follows_a_spread_that_grows(quantile: float) -> None:
    random = np.random.default_rng(1)
    size = random.uniform(1, 3, 4_000)
    predict = fit_quantile(np.column_stack([np.ones(4_000), size]), size * random.uniform(0, 1, 4_000), quantile)
    for at in (1.2, 2.0, 2.8):
        assert predict(np.array([1.0, at])) == pytest.approx(quantile * at, abs=0.1)


def test_a_column_that_never_changes_says_nothing() -> None:
    rows = np.column_stack([np.ones(300), np.full(300, 7.0)])
    assert fit_quantile(rows, np.arange(300.0), 0.5)(np.array([1.0, 7.0])) == pytest.approx(149.5, abs=2)
