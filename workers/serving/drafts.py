"""Publish the new text of answers that are being generated. The first text and the end of an answer are published
immediately, other text every `interval_s`, because a message costs the same at any length."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shared.process.clock import monotonic_s
from shared.telemetry.faults import caught, contained
from shared.wire.messages import ReplyDelta
from workers.request.job import Job
from workers.schedule.roster import Roster
from workers.schedule.sequence import Finished


@dataclass(frozen=True, slots=True)
class Grown:
    """New text of an answer."""

    job: Job
    delta: ReplyDelta


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer. Its job now belongs to the receiver."""

    job: Job
    finished: Finished


@dataclass(frozen=True, slots=True)
class Released:
    """An answer that was given up before any of its text was published. Its job now belongs to the receiver."""

    job: Job


Progress = Grown | Ended | Released


@dataclass(slots=True, kw_only=True)
class Drafts:
    """The answers being written. One thread owns them and calls `publish`.

    An answer that fails by an internal fault is removed from `roster` too.
    """

    roster: Roster
    publish: Callable[[list[Progress]], None]
    interval_s: float
    _jobs: dict[str, Job] = field(default_factory=dict, init=False)
    _stopped: dict[str, Job] = field(default_factory=dict, init=False)
    _begins: bool = field(default=False, init=False)
    _ended: list[Ended | Released] = field(default_factory=list, init=False)
    _flushed_s: float = field(default=float("-inf"), init=False)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def add(self, job: Job) -> None:
        self._jobs[job.id] = job

    def get(self, request_id: str) -> Job | None:
        """Return the job of an answer that has not ended."""
        return self._jobs.get(request_id)

    def note_growth(self, job: Job) -> None:
        """Record that an answer has new text: it may have its first text, or be over."""
        self._begins = self._begins or job.answer.begins
        self._note_stop(job)

    def stopped(self) -> list[Job]:
        """Return the jobs whose answer is over because of a stop string or the guard."""
        return list(self._stopped.values())

    def finish(self, finished: Finished) -> None:
        """End an answer, unless it was given up. Text that was held back is released, unless the deadline came before
        any text was shown.
        """
        job = self._jobs.pop(finished.sequence.request_id, None)
        if job is None:
            return
        self._stopped.pop(job.id, None)
        with contained("answer", request_id=job.id) as finishing:
            if job.sequence.shown_unix_ms is not None or not finished.unmet:
                job.answer.finish(whole=finished.reason == "stop")
        if finishing.error is not None:
            self._fail(job)
        else:
            self._ended.append(Ended(job, finished))

    def release_unseen(self) -> list[Job]:
        """Give up the answers without text and return their jobs. No more of them is computed."""
        unseen = [job for job in self if not job.answer.text]
        for job in unseen:
            del self._jobs[job.id]
            self._stopped.pop(job.id, None)
            self.roster.withdraw(job.sequence)
            self._ended.append(Released(job))
        return unseen

    def give_up(self, request_id: str, error: Exception) -> None:
        """End an answer as failed by an internal fault, with the text that it has."""
        caught("answer", error, request_id=request_id)
        job = self._jobs.pop(request_id, None)
        if job is None:
            return
        self._stopped.pop(request_id, None)
        with contained("answer", request_id=request_id):
            self.roster.finish(job.sequence, failed=True)
        self._fail(job)

    def flush_due(self) -> bool:
        """Flush if an answer has its first text or has ended, or the interval is over; return whether it did."""
        due = bool(self._ended) or self._begins or monotonic_s() - self._flushed_s >= self.interval_s
        if due:
            self.flush()
        return due

    def flush_ends(self) -> None:
        """Flush if an answer has ended."""
        if self._ended:
            self.flush()

    def flush(self) -> None:
        """Publish all new text and ends. An exception of `publish` fails no answer."""
        progress: list[Progress] = []
        for job in self:
            try:
                delta = job.answer.pop_delta()
            except Exception as error:  # noqa: BLE001 - counted and logged; the others' text is published
                self.give_up(job.id, error)
                continue
            self._note_stop(job)
            if delta is not None:
                progress.append(Grown(job, delta))
        progress += self._ended
        self._ended, self._begins, self._flushed_s = [], False, monotonic_s()
        if progress:
            with contained("task"):
                self.publish(progress)

    def _note_stop(self, job: Job) -> None:
        if job.answer.stopped:
            self._stopped[job.id] = job

    def _fail(self, job: Job) -> None:
        job.faulty = True
        self._ended.append(Ended(job, Finished(job.sequence, "failed", "internal")))
