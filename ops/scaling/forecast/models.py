"""The forecasts by name. Pure."""

from functools import partial
from typing import Final

from ops.scaling.forecast.calibrated import Calibrated
from ops.scaling.forecast.forecaster import Forecaster
from ops.scaling.forecast.points import DampedSmoothing, LastValue, SeasonalNaive
from ops.scaling.forecast.regressed import Regressed
from ops.scaling.forecast.regression import Fit, fit_mean, fit_quantile
from shared.errors import SettingsError

_DAY_S: Final = 86_400.0
_REFIT_EVERY: Final = 12

MODELS: Final = ("last", "damped", "day", "week", "linear", "conditional")
DEFAULT: Final = "conditional"


def make(name: str = DEFAULT, *, bin_s: float = 60.0) -> Forecaster:
    """Return a new forecaster of bins of `bin_s` seconds. Raises `SettingsError` if `MODELS` does not have the name."""
    match name:
        case "last":
            return Calibrated(name, LastValue)
        case "damped":
            return Calibrated(name, DampedSmoothing)
        case "day":
            return Calibrated(name, partial(SeasonalNaive, round(_DAY_S / bin_s)))
        case "week":
            return Calibrated(name, partial(SeasonalNaive, round(7 * _DAY_S / bin_s)))
        case "linear":
            return Regressed(name, lambda _quantile: fit_mean, bin_s=bin_s, every=_REFIT_EVERY)
        case "conditional":
            return Regressed(name, _of_quantile, bin_s=bin_s, every=_REFIT_EVERY)
        case _:
            raise SettingsError(f"forecast {name!r}: unknown; one of {', '.join(MODELS)}")


def _of_quantile(quantile: float) -> Fit:
    return partial(fit_quantile, quantile=quantile)
