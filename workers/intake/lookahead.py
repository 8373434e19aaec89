"""Decide which of the requests read are begun, and which topics are paused. Pure.

A request is parked when it is read, and begun (prepared, then waiting for a slot) while fewer than `max_waiting` are.
Each bucket has a reserve; any bucket may use the rest of the room. The bucket with the fewest waiting requests comes
first, so two floods share the room, and a flood of one bucket does not block another's requests (max-min fairness:
Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from shared.wire.messages import Bucket
from workers.request.job import Job
from workers.schedule.sequence import Phase

T = TypeVar("T")

_RESERVE_SHARE: Final = 8  # share of `max_waiting` reserved for each bucket


class Lookahead(Generic[T]):
    """Requests that were read and have not begun, by bucket, in the order of reading."""

    def __init__(self, buckets: Sequence[Bucket], *, max_waiting: int) -> None:
        self.buckets = tuple(buckets)
        self.max_waiting = max_waiting
        # with less room than buckets there is no reserve
        self.reserve = min(max(1, max_waiting // _RESERVE_SHARE), max_waiting // len(self.buckets))
        self._parked: dict[Bucket, deque[T]] = {bucket: deque() for bucket in self.buckets}
        self._resting: set[Bucket] = set()

    @property
    def num_parked(self) -> int:
        return sum([len(parked) for parked in self._parked.values()])

    def park(self, bucket: Bucket, request: T) -> None:
        self._parked[bucket].append(request)

    def next(self, waiting: Mapping[Bucket, int]) -> tuple[Bucket, T] | None:
        """Return the next request to begin, or None. `waiting` counts the requests that have begun and have no slot."""
        ready = [bucket for bucket, parked in self._parked.items() if parked and self._may_begin(bucket, waiting)]
        if not ready:
            return None
        bucket = min(ready, key=waiting.__getitem__)
        return bucket, self._parked[bucket].popleft()

    def _may_begin(self, bucket: Bucket, waiting: Mapping[Bucket, int]) -> bool:
        kept_for_others = sum([max(0, self.reserve - waiting[other]) for other in self.buckets if other != bucket])
        return sum(waiting.values()) + kept_for_others < self.max_waiting

    def resting(self) -> frozenset[Bucket]:
        """Return the paused buckets: a bucket is paused at `max_waiting` parked requests and resumed at half of
        them."""
        for bucket, parked in self._parked.items():
            if len(parked) >= self.max_waiting:
                self._resting.add(bucket)
            elif len(parked) <= self.max_waiting // 2:
                self._resting.discard(bucket)
        return frozenset(self._resting)

    def drop(self, unwanted: Callable[[T], bool]) -> None:
        """Drop parked requests; they will be read again, by this or another worker."""
        for bucket, parked in self._parked.items():
            self._parked[bucket] = deque(request for request in parked if not unwanted(request))


class WaitingJobs:
    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._jobs: dict[Bucket, list[Job]] = {bucket: [] for bucket in buckets}

    def add(self, bucket: Bucket, job: Job) -> None:
        self._jobs[bucket].append(job)

    def waiting(self, prepared: Iterable[Bucket]) -> dict[Bucket, int]:
        """Return how many requests of each bucket are being `prepared` or wait for a slot. The engine's thread
        assigns slots."""
        waiting = dict.fromkeys(self._jobs, 0)
        for bucket in prepared:
            waiting[bucket] += 1
        for bucket, jobs in self._jobs.items():
            self._jobs[bucket] = [job for job in jobs if job.sequence.phase is Phase.WAITING]
            waiting[bucket] += len(self._jobs[bucket])
        return waiting
