"""The figures of forecasts as tables, and which model may be the default. Pure."""

from collections.abc import Sequence
from typing import Final

from ops.lab.forecast.rolling import Row
from ops.measure.runner import markdown

_BAR: Final = ("last", "damped")
_BETTER: Final = 0.95
_LEAST_MIN: Final = 10.0


def table(rows: Sequence[Row]) -> str:
    """Return a row a model, trace and horizon."""
    header = ("trace", "minutes", "model", "WAPE", "coverage", "over", "under", "of persistence's", "s")
    shown = sorted(rows, key=lambda row: (row.trace, row.horizon_min))
    return markdown(
        header,
        [
            (
                row.trace,
                f"{row.horizon_min:g}",
                row.model,
                f"{row.wape:.3f}",
                f"{row.coverage:.3f}",
                f"{row.over:.3f}",
                f"{row.under:.4f}",
                None if row.of_persistence is None else f"{row.of_persistence:.2f}",
                f"{row.fit_s:.1f}",
            )
            for row in shown
        ],
    )


def beats(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Return on how many of its traces and horizons, ten minutes ahead or more, each model leaves at least 5 % less
    unserved, at equal cost, than the last value and damped smoothing do, and how many there are."""
    of = {(row.trace, row.horizon_min, row.model): row.of_persistence for row in rows}
    found: dict[str, tuple[int, int]] = {}
    for (trace, horizon, model), share in of.items():
        bars = [bar for name in _BAR if (bar := of.get((trace, horizon, name))) is not None]
        if model in _BAR or horizon < _LEAST_MIN or share is None or len(bars) < len(_BAR):
            continue
        wins, judged = found.get(model, (0, 0))
        found[model] = (wins + (share <= _BETTER * min(1.0, *bars)), judged + 1)
    return found


def verdicts(rows: Sequence[Row]) -> str:
    """Return the rule's result, a line a model."""
    rule = f"leaves at least 5 % less unserved than last and damped, {_LEAST_MIN:g} minutes ahead or more"
    return "\n".join(f"{model}: {rule}, in {wins} of {judged}" for model, (wins, judged) in beats(rows).items())
