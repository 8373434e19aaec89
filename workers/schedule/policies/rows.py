"""How many rows run together: no more than let the answers of every class end in time.

A step takes longer the more rows it has. Where a class's long answers would take longer than their deadline in a full
batch, whether one of them is met would be luck. So under load not all slots are used, as far as that costs little of
what the machine does.
"""

from typing import Final

from workers.schedule.policies.forecast import Forecast
from workers.schedule.policies.item import Item

_SHARE_IN_SLOT: Final = 0.9  # of the time to the deadline; the rest is for waiting
_LEAST_THROUGHPUT: Final = 0.9  # of a full batch's
_RARE: Final = 0.01  # of those that come: a class of fewer does not count
_LEARN: Final = 0.01
_LEARN_SHORTER: Final = 0.1  # nearly all of a class are to fit, not the mean one


class Rows:
    """Told of each item that comes."""

    def __init__(self, forecast: Forecast, *, num_slots: int) -> None:
        self._forecast = forecast
        self._num_slots = num_slots
        self._shares: dict[str, float] = {}  # of those that come lately, by class
        self._step_ms: dict[str, float] = {}  # that the class's answers bear

    def offered(self, item: Item) -> None:
        bucket, deadline = item.sequence.bucket, item.deadline_unix_ms - item.sequence.arrived_unix_ms
        step_ms = (_SHARE_IN_SLOT * deadline - item.prefill_ms) / item.num_output
        known_ms = self._step_ms.setdefault(bucket, step_ms)
        self._step_ms[bucket] += (_LEARN_SHORTER if step_ms < known_ms else _LEARN) * (step_ms - known_ms)
        for other, share in self._shares.items():
            self._shares[other] = share * (1 - _LEARN)
        self._shares[bucket] = self._shares.get(bucket, 0.0) + _LEARN

    def most(self) -> int:
        """All slots, or as many as every class bears, but not so few that the machine would do much less."""
        bearable_ms = [self._step_ms[bucket] for bucket, share in self._shares.items() if share > _RARE]
        most_ms = min(bearable_ms, default=float("inf"))
        step_ms, low, high = self._forecast.step_ms, 1, self._num_slots
        least = _LEAST_THROUGHPUT * high / step_ms(high)
        while low < high:  # the most rows whose steps are short enough, and no fewer than have that throughput
            rows = (low + high + 1) // 2
            if step_ms(rows) <= most_ms or (rows - 1) / step_ms(rows - 1) < least:
                low = rows
            else:
                high = rows - 1
        return low
