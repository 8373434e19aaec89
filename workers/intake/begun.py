"""The jobs that have been begun and wait for a slot, by bucket. Pure."""

from collections.abc import Iterable, Sequence

from shared.wire.messages import Bucket
from workers.request.job import Job
from workers.schedule.sequence import Phase


class Begun:
    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._jobs: dict[Bucket, list[Job]] = {bucket: [] for bucket in buckets}

    def add(self, bucket: Bucket, job: Job) -> None:
        self._jobs[bucket].append(job)

    def waiting(self, prepared: Iterable[Bucket]) -> dict[Bucket, int]:
        """Return, by bucket, how many requests are being `prepared` or wait for a slot. Slots are the engine's thread's
        to give."""
        waiting = dict.fromkeys(self._jobs, 0)
        for bucket in prepared:
            waiting[bucket] += 1
        for bucket, jobs in self._jobs.items():
            self._jobs[bucket] = [job for job in jobs if job.sequence.phase is Phase.WAITING]
            waiting[bucket] += len(self._jobs[bucket])
        return waiting
