"""Compare forecasts with the recorded values: each bin is forecast from the bins before it alone, and
the last six of fourteen parts are judged. Pure."""

from collections.abc import Callable, Sequence
from math import nan
from typing import Final

import numpy as np
from msgspec import Struct

from ops.scaling.forecast.features import Vector
from ops.scaling.forecast.forecaster import Forecaster
from ops.scaling.forecast.models import make
from ops.traces.recorded import Series
from shared.errors import SettingsError

_LEARNED: Final = 8 / 14
_MOST_HEADROOM: Final = 1_000.0
_LEAST: Final = 1e-6
_DAY_S: Final = 86_400.0


class Row(Struct, frozen=True, kw_only=True):
    """A model on a trace, `horizon_min` ahead. `wape`: Σ|y - expected| / Σy. `coverage`: the share of the bins below
    their bound. `over`: Σ(bound - y)⁺ / Σy, what it costs; `under`: Σ(y - bound)⁺ / Σy, what it leaves unserved, and
    `of_persistence` as a share of what the last value leaves with the flat headroom that costs as much. `fit_s`:
    processor time of learning and forecasting the whole trace."""

    trace: str
    model: str
    horizon_min: float
    wape: float
    coverage: float
    over: float
    under: float
    of_persistence: float | None
    fit_s: float


def usual_horizons_min(series: Series) -> tuple[float, float]:
    """Return 10 and 20 minutes; less for a series of less than a day."""
    return (10.0, 20.0) if len(series.values) * series.bin_s >= _DAY_S else (1.0, 2.0)


def rows_of(
    series: Series, forecaster: Forecaster, horizons_min: Sequence[float], quantile: float, clock: Callable[[], float]
) -> list[Row]:
    """Forecast each bin of the series. Raises `SettingsError` where a horizon is no whole number of its bins, or it is
    too short."""
    steps = [_steps(series, horizon) for horizon in horizons_min]
    values = np.array([nan if value is None else value for value in series.values])
    begun = clock()
    promises = _promised(forecaster, values, steps, quantile)
    fit_s = clock() - begun
    rows = []
    for horizon, promise, flat in zip(horizons_min, promises, _promised(make("last"), values, steps, 0.5), strict=True):
        known = ~np.isnan(values + promise.sum(axis=1) + flat.sum(axis=1))
        judged = known & (np.arange(len(values)) >= len(values) * _LEARNED)
        y, (bound, expected), persistent = values[judged], promise[judged].T, flat[judged, 1]
        if not y.sum() > 0.0:
            raise SettingsError(f"--trace {series.name}: nothing to judge {horizon:g} minutes ahead; record for longer")
        over, under = _missed(bound, y)
        of_flat = _under_at(persistent, y, over)
        rows.append(
            Row(
                trace=series.name,
                model=forecaster.name,
                horizon_min=horizon,
                wape=float(np.abs(y - expected).sum() / y.sum()),
                coverage=float((y <= bound).mean()),
                over=over,
                under=under,
                of_persistence=under / of_flat if of_flat > 0.0 else None,
                fit_s=fit_s,
            )
        )
    return rows


def _promised(forecaster: Forecaster, values: Vector, steps: Sequence[int], quantile: float) -> list[Vector]:
    """Return for each distance the bound and the expected value of each bin, as forecast that many bins before."""
    said = [np.full((len(values) + ahead, 2), nan) for ahead in steps]
    for number, value in enumerate(values):
        forecaster.observe(float(value))
        for ahead, of_bin in zip(steps, said, strict=True):
            of_bin[number + ahead] = forecaster.upper(ahead, quantile), forecaster.expected(ahead)
    return [of_bin[: len(values)] for of_bin in said]


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
