"""The times at which a worker could start its next requests, as its scheduler predicts them. The worker reports these
to the gateways, which accept questions by them. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.wire.fields import MAX_PREDICTED_MS
from shared.wire.messages import Bucket
from shared.wire.reports import WorkerReport

# A change of the predicted first token by more than both is reported immediately.
_LEAST_MS: Final = 50.0
_SHARE: Final = 0.25
# Interval for renewing the outlook between steps; shorter if the number of sequences has changed.
_EVERY_MS: Final = 100.0
_CHANGED_MS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """`backlog_ms` is the predicted machine time of the waiting requests that are kept. By bucket: `first_token_ms`
    from a request's arrival now to its first shown text, `service_ms` the machine time of one request. `cold_ms`
    is what a prompt takes longer of which no KV is kept. `prompt_tokens` and `output_tokens` are the mean lengths of
    the requests that got a slot lately."""

    running: int
    waiting: int
    free_slots: int
    backlog_ms: float
    first_token_ms: dict[Bucket, float]
    service_ms: dict[Bucket, float]
    cold_ms: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0

    def differs_much(self, other: "Outlook") -> bool:
        """Return whether the change must be reported before the next report is due."""
        mine, theirs = self.first_token_ms, other.first_token_ms
        if mine.keys() != theirs.keys():
            return True
        return any(abs(mine[bucket] - theirs[bucket]) > max(_LEAST_MS, _SHARE * theirs[bucket]) for bucket in mine)

    def report(self, worker_id: str, partitions: Mapping[Bucket, Sequence[int]], now_unix_ms: float) -> WorkerReport:
        """Return the report for the gateways.

        Values that are not numbers or exceed the allowed range are reported as the maximum.

        Args:
            worker_id: the worker's id.
            partitions: the partitions being read, by bucket served.
            now_unix_ms: the current time, on the wire's clock.
        """
        return WorkerReport(
            worker_id=worker_id,
            unix_ms=int(now_unix_ms),
            buckets=tuple(partitions),
            slots=self.running + self.free_slots,
            running=self.running,
            waiting=self.waiting,
            backlog_ms=_on_the_wire(self.backlog_ms),
            first_token_ms={bucket: _on_the_wire(ms) for bucket, ms in self.first_token_ms.items()},
            service_ms={bucket: _on_the_wire(ms) for bucket, ms in self.service_ms.items()},
            cold_ms=_on_the_wire(self.cold_ms),
            partitions={bucket: tuple(numbers) for bucket, numbers in partitions.items() if numbers},
        )


@dataclass(slots=True)
class LatestOutlook:
    """The most recent outlook; None before the first."""

    value: Outlook | None = None
    _renewed_unix_ms: float = field(default=float("-inf"), init=False)
    _load: tuple[int, int] = field(default=(-1, -1), init=False)

    def renew(
        self, look: Callable[[float], Outlook | None], load: tuple[int, int], now_unix_ms: float, *, idle: bool
    ) -> bool:
        """Renew the outlook if that is due, and return whether it was.

        Args:
            look: computes the outlook.
            load: number of waiting and running sequences.
            now_unix_ms: the current time.
            idle: no step follows.
        """
        every_ms = _EVERY_MS if load == self._load else _CHANGED_MS
        if not idle and 0 <= now_unix_ms - self._renewed_unix_ms < every_ms:
            return False
        self.value, self._renewed_unix_ms, self._load = look(now_unix_ms), now_unix_ms, load
        return True


def _on_the_wire(predicted_ms: float) -> float:
    if math.isnan(predicted_ms):
        return MAX_PREDICTED_MS
    return round(min(max(predicted_ms, 0.0), MAX_PREDICTED_MS), 3)
