"""Compare forecasts with the recorded values. Each bin is forecast only from the bins before it, and only the last six
fourteenths of the series are judged. Pure."""

from collections.abc import Callable, Sequence
from math import nan
from typing import Final

import numpy as np
from msgspec import Struct

from ops.scaling.forecast.demand_forecast import Forecast
from ops.scaling.forecast.features import Vector
from ops.traces.recorded import Series
from shared.errors import SettingsError

HORIZONS_MIN: Final = (10.0, 20.0)
_LEARNED: Final = 8 / 14
_MOST_HEADROOM: Final = 1_000.0
_LEAST: Final = 1e-6


class ForecastRow(Struct, frozen=True, kw_only=True):
    """The forecast of a trace, `horizon_min` minutes ahead.

    Attributes:
        trace: the trace's name.
        horizon_min: how far ahead.
        coverage: the share of the bins below their bound.
        over: Σ(bound - y)⁺ / Σy, what it costs.
        under: Σ(y - bound)⁺ / Σy, what it leaves unserved.
        of_persistence: `under` divided by what the last value leaves with the flat headroom that costs as much.
        fit_s: processor time of learning and forecasting the whole trace.
    """

    trace: str
    horizon_min: float
    coverage: float
    over: float
    under: float
    of_persistence: float | None
    fit_s: float


def rows_of(
    series: Series, forecast: Forecast, horizons_min: Sequence[float], quantile: float, clock: Callable[[], float]
) -> list[ForecastRow]:
    """Forecast each bin of the series.

    Raises:
        SettingsError: a horizon is not a multiple of the series' bin, or the series is too short
    """
    steps = [_steps(series, horizon) for horizon in horizons_min]
    values = np.array([nan if value is None else value for value in series.values])
    begun = clock()
    bounds = _bounds(forecast, values, steps, quantile)
    fit_s = clock() - begun
    rows = []
    for horizon, ahead, bound in zip(horizons_min, steps, bounds, strict=True):
        last = _last_known(values, ahead)
        judged = ~np.isnan(values + bound + last) & (np.arange(len(values)) >= len(values) * _LEARNED)
        y, upper = values[judged], bound[judged]
        if not y.sum() > 0.0:
            raise SettingsError(f"--trace {series.name}: nothing to judge {horizon:g} minutes ahead; record for longer")
        over, under = _missed(upper, y)
        of_flat = _under_at(last[judged], y, over)
        rows.append(
            ForecastRow(
                trace=series.name,
                horizon_min=horizon,
                coverage=float((y <= upper).mean()),
                over=over,
                under=under,
                of_persistence=under / of_flat if of_flat > 0.0 else None,
                fit_s=fit_s,
            )
        )
    return rows


def _bounds(forecast: Forecast, values: Vector, steps: Sequence[int], quantile: float) -> list[Vector]:
    """Return for each distance the bound of each bin, as it was forecast that many bins before."""
    bounds = [np.full(len(values) + ahead, nan) for ahead in steps]
    for number, value in enumerate(values):
        forecast.observe(float(value))
        for ahead, of_bin in zip(steps, bounds, strict=True):
            of_bin[number + ahead] = forecast.upper(ahead, quantile)
    return [of_bin[: len(values)] for of_bin in bounds]


def _last_known(values: Vector, ahead: int) -> Vector:
    """Return for each bin the last recorded value of `ahead` bins before: persistence, the usual bar of a forecast."""
    found, last = np.full(len(values), nan), nan
    for number, value in enumerate(values[: len(values) - ahead]):
        last = last if np.isnan(value) else value
        found[number + ahead] = last
    return found


def _steps(series: Series, horizon_min: float) -> int:
    steps = horizon_min * 60.0 / series.bin_s
    if not (_LEAST <= steps < len(series.values) * _LEARNED and abs(steps - round(steps)) < _LEAST):
        raise SettingsError(
            f"--horizon-min {horizon_min:g}: {series.name} has {len(series.values)} bins of {series.bin_s / 60:g} "
            "minutes; a whole number of them, less than its half"
        )
    return round(steps)


def _missed(bound: Vector, y: Vector) -> tuple[float, float]:
    total = y.sum()
    return float(np.maximum(bound - y, 0.0).sum() / total), float(np.maximum(y - bound, 0.0).sum() / total)


def _under_at(persistent: Vector, y: Vector, over: float) -> float:
    """Return what persistence leaves with the flat headroom at which it costs `over`."""
    low, high = -1.0, _MOST_HEADROOM
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _missed(persistent * (1.0 + middle), y)[0] < over else (low, middle)
    return _missed(persistent * (1.0 + low), y)[1]
