"""Hold forecasts to what came then: each bin is forecast from those before it alone, the last six of fourteen parts are
judged."""

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
    """A model on a trace, so many minutes ahead. `wape`: Σ|y - expected| / Σy. `coverage`: the share of the bins below
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


def rows_of(
    series: Series, forecaster: Forecaster, horizons_min: Sequence[float], quantile: float, clock: Callable[[], float]
) -> list[Row]:
    """Forecast each bin of the series. Raises `SettingsError` where a horizon is no whole number of its bins, or it is
    too short."""
    steps = [_steps(series, horizon) for horizon in horizons_min]
    values = np.array([nan if value is None else value for value in series.values])
    last, begun = _Promises(make("last"), steps), clock()
    asked = _Promises(forecaster, steps)
    for value in values:
        asked.observe(float(value), quantile)
    fit_s = clock() - begun
    for value in values:
        last.observe(float(value), quantile)
    rows = []
    for horizon, ahead in zip(horizons_min, steps, strict=True):
        upper, expected = asked.of(ahead)
        _, persistent = last.of(ahead)
        judged = np.arange(len(values)) >= len(values) * _LEARNED
        judged &= ~(np.isnan(values) | np.isnan(upper) | np.isnan(persistent))
        y, bound, expects, flat = (each[judged] for each in (values, upper, expected, persistent))
        if not y.sum() > 0.0:
            raise SettingsError(f"--trace {series.name}: nothing to judge {horizon:g} minutes ahead; record for longer")
        over, under = _missed(bound, y)
        of_flat = _under_at(flat, y, over)
        rows.append(
            Row(
                trace=series.name,
                model=forecaster.name,
                horizon_min=horizon,
                wape=float(np.abs(y - expects).sum() / y.sum()),
                coverage=float((y <= bound).mean()),
                over=over,
                under=under,
                of_persistence=under / of_flat if of_flat > 0.0 else None,
                fit_s=fit_s,
            )
        )
    return rows


def usual_horizons_min(series: Series) -> tuple[float, float]:
    """Return 10 and 20 minutes; less for a series of less than a day."""
    return (10.0, 20.0) if len(series.values) * series.bin_s >= _DAY_S else (1.0, 2.0)


class _Promises:
    """What a forecaster said of each bin, by distance."""

    def __init__(self, forecaster: Forecaster, steps: Sequence[int]) -> None:
        self._forecaster = forecaster
        self._said = {ahead: [(nan, nan)] * ahead for ahead in steps}

    def observe(self, value: float, quantile: float) -> None:
        self._forecaster.observe(value)
        for ahead, said in self._said.items():
            said.append((self._forecaster.upper(ahead, quantile), self._forecaster.expected(ahead)))

    def of(self, ahead: int) -> tuple[Vector, Vector]:
        upper, expected = np.array(self._said[ahead][:-ahead]).T
        return upper, expected


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
        if _missed(persistent * (1.0 + middle), y)[0] < over:
            low = middle
        else:
            high = middle
    return _missed(persistent * (1.0 + low), y)[1]
