"""The ends of records that never became a job, until each is acknowledged."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.wire.messages import ReplyDone
from shared.wire.requests import Target
from workers.request.answer_readers import Replies
from workers.request.job import Job


class UnreadAnswers:
    """`jobs` are those that are being answered, by their request's id; `num` ends are not acknowledged yet."""

    def __init__(self, publisher: Replies, offsets: OffsetTracker, jobs: Mapping[str, Job]) -> None:
        self._publisher, self._offsets, self._jobs = publisher, offsets, jobs
        self.num = 0

    def answer(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        """Publish the terminal event of a record that never became a job; one that did, and is read again, has its own:
        then False."""
        job = self._jobs.get(done.request_id)
        if job is not None and origin in job.origins:
            return False
        self._end(target, done, partial(self._offsets.done, *origin))
        return True

    async def refuse(self, target: Target, done: ReplyDone) -> None:
        """Publish the end of a request that is not served; return when it is acknowledged. Nobody is told where another
        request under its id is being answered: a reader would take the end for that one's."""
        if done.request_id not in self._jobs:
            acknowledged = asyncio.Event()
            self._end(target, done, acknowledged.set)
            await acknowledged.wait()

    def _end(self, target: Target, done: ReplyDone, settle: Callable[[], None]) -> None:
        def settled() -> None:
            self.num -= 1
            settle()

        self._publisher.done(target, done, settled)
        self.num += 1
