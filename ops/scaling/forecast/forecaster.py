"""The interface of every forecast: the expected value, and the value that is not exceeded with a given probability.
Pure."""

from typing import Protocol


class Forecaster(Protocol):
    """Forecasts one series of equally long bins. It gets each bin as it ends, in order, and learns online: `upper` is
    calibrated by the errors of earlier forecasts. All results are NaN before the first value."""

    name: str

    def observe(self, value: float) -> None:
        """Add the next bin's value. NaN means that it was not recorded; nothing is learned from it."""

    def expected(self, steps: int) -> float:
        """Return the value expected of the bin `steps` after the last one."""

    def upper(self, steps: int, quantile: float) -> float:
        """Return the value that the bin `steps` after the last one exceeds with a probability of `1 - quantile`."""
