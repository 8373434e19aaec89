"""The forecasts by name. Pure."""

from collections.abc import Callable
from typing import Final

from ops.scaling.forecast.calibrated import Calibrated
from ops.scaling.forecast.forecaster import Forecaster
from ops.scaling.forecast.points import DampedSmoothing, LastValue, PointModel
from shared.errors import SettingsError

_POINTS: Final[dict[str, Callable[[], PointModel]]] = {"last": LastValue, "damped": DampedSmoothing}
MODELS: Final = tuple(_POINTS)
DEFAULT: Final = "damped"


def make(name: str = DEFAULT) -> Forecaster:
    """Return a new forecaster. Raises `SettingsError` for a name that is none of `MODELS`."""
    if name not in _POINTS:
        raise SettingsError(f"forecast {name!r}: unknown; one of {', '.join(MODELS)}")
    return Calibrated(name, _POINTS[name])
