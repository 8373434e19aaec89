"""The questions that every forecast is asked: how much will be asked then, and how much with a given probability at
most. Pure."""

from typing import Protocol


class Forecaster(Protocol):
    """Forecasts one series of equally long bins. It is told each bin as it ends, in order, and learns online: `upper`
    is calibrated by how far the forecasts before were off. All are NaN until a value was observed."""

    name: str

    def observe(self, value: float) -> None:
        """Take the next bin's value; NaN where it was not recorded, which is never learned."""

    def expected(self, steps: int) -> float:
        """Return the value expected of the bin `steps` after the last one."""

    def upper(self, steps: int, quantile: float) -> float:
        """Return the value that the bin `steps` after the last one exceeds with a probability of `1 - quantile`."""
