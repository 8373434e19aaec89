"""Decide how many rows run together: at most as many as let the answers of every class end in time.

A step takes longer with more rows. If a class's long answers would miss their deadline in a full batch, meeting one
would be luck. So under load not all slots are used, as far as that costs little throughput.

An answer whose first text is held back also takes longer to show it with more rows. If fewer answers are planned to
show it in time, more rows may run; the number of rows is chosen to show the most first texts in time.
"""

from typing import Final

from workers.schedule.goodput.forecast import HELD, Forecast
from workers.schedule.goodput.queue import Item

_SHARE_IN_SLOT: Final = 0.9  # share of the time to the deadline; the rest is for waiting
_LEAST_THROUGHPUT: Final = 0.9  # share of a full batch's throughput
_RARE: Final = 0.01  # share of the arrivals below which a class does not count
_LEARN: Final = 0.01
_LEARN_SHORTER: Final = 0.1  # faster, since nearly all answers of a class should fit, not only the mean one


class Rows:
    """The limits on rows; each offered item updates them."""

    def __init__(self, forecast: Forecast, *, num_slots: int) -> None:
        self._forecast = forecast
        self._num_slots = num_slots
        self._shares: dict[str, float] = {}  # recent share of the arrivals, by class
        self._step_ms: dict[str, float] = {}  # longest step that the class's answers can bear
        self._shown_ms: dict[str, float] = {}  # from the first token to the first text's deadline, by class

    def offered(self, item: Item) -> None:
        bucket, deadline = item.sequence.bucket, item.deadline_unix_ms - item.sequence.arrived_unix_ms
        step_ms = (_SHARE_IN_SLOT * deadline - item.prefill_ms) / item.num_output
        known_ms = self._step_ms.setdefault(bucket, step_ms)
        self._step_ms[bucket] += (_LEARN_SHORTER if step_ms < known_ms else _LEARN) * (step_ms - known_ms)
        if item.sequence.held:
            soon_ms = item.first_token_unix_ms - item.sequence.arrived_unix_ms - item.prefill_ms
            self._shown_ms[bucket] = self._shown_ms.get(bucket, soon_ms) * (1 - _LEARN) + _LEARN * soon_ms
        for other, share in self._shares.items():
            self._shares[other] = share * (1 - _LEARN)
        self._shares[bucket] = self._shares.get(bucket, 0.0) + _LEARN

    def most(self) -> int:
        """Return the number of rows that every class can bear, but not so few that throughput would drop much."""
        bearable_ms = [self._step_ms[bucket] for bucket, share in self._shares.items() if share > _RARE]
        most_ms = min(bearable_ms, default=float("inf"))
        return self._rows(most_ms, _LEAST_THROUGHPUT * self._num_slots / self._forecast.step_ms(self._num_slots))

    def shown(self) -> tuple[int, float]:
        """Return how many rows should run so that the most first texts are shown in time.

        A first text is shown only after some held-back tokens, fewer in some answers than in others.

        Returns:
            The number of rows, and the share of the answers whose first text they can show in time.
        """
        classes = [bucket for bucket in self._shown_ms if self._shares[bucket] > _RARE]
        best, most = (self._num_slots, HELD[-1]), 0.0
        for quantile in HELD if classes else ():
            held = [(self._shown_ms[bucket], self._forecast.num_held(bucket, quantile)) for bucket in classes]
            most_ms = min([shown_ms / max(num_held, 1) for shown_ms, num_held in held])
            rows = self._rows(most_ms, 0.0)
            step_ms = self._forecast.step_ms(rows)
            if step_ms <= most_ms and quantile * rows / step_ms >= most:
                best, most = (rows, quantile), quantile * rows / step_ms
        return best

    def _rows(self, most_ms: float, least: float) -> int:
        """Return the most rows with a step of at most `most_ms`, but no fewer than needed for a throughput of
        `least`."""
        step_ms, low, high = self._forecast.step_ms, 1, self._num_slots
        while low < high:
            rows = (low + high + 1) // 2
            if step_ms(rows) <= most_ms or (rows - 1) / step_ms(rows - 1) < least:
                low = rows
            else:
                high = rows - 1
        return low
