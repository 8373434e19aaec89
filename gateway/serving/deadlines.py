"""Watch the deadlines of all answers with one event-loop timer, set for the earliest."""

import asyncio
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gateway.request import endings
from gateway.request.entry import Entry
from gateway.request.inflight import InflightTable
from gateway.serving.answering import Answering
from shared.process.clock import now_unix_ms
from shared.telemetry.faults import contained

_AGAIN_S: Final = 0.05


@dataclass(slots=True)
class DueTimes:
    """The times at which an open request may miss a deadline: first the one for its first token, then the one for its
    end."""

    inflight: InflightTable
    _heap: list[tuple[int, str]] = field(default_factory=list)
    _held: set[tuple[int, str]] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        """Add the deadlines that apply now. Call it again when a client resumes: a deadline may have been skipped
        because of text that the client no longer has."""
        deadline = entry.deadline
        for unix_ms in (deadline.first_token_unix_ms, deadline.deadline_unix_ms):
            due = (unix_ms, entry.response_id)
            if due not in self._held:
                self._held.add(due)
                heapq.heappush(self._heap, due)

    def next_unix_ms(self) -> int | None:
        """Return the time at which to call `late` next; None if no request is open."""
        while self._heap and self.inflight.get(self._heap[0][1]) is None:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def late(self, now_unix_ms: float) -> Iterator[Entry]:
        """Yield the requests that missed a deadline.

        End each one before asking for the next: by a fallback if no text was shown, otherwise by a cut. If ending one
        raises, the others remain due.
        """
        late: set[str] = set()
        while (due := self.next_unix_ms()) is not None and due <= now_unix_ms:
            entry = self.inflight.get(self._pop())
            if entry is None or entry.response_id in late:
                continue
            if entry.deadline.expired(now_unix_ms, started=entry.started):
                late.add(entry.response_id)
                yield entry

    def _pop(self) -> str:
        due = heapq.heappop(self._heap)
        self._held.discard(due)
        return due[1]


@dataclass(slots=True, kw_only=True)
class Deadlines:
    """Owned by the gateway's event loop."""

    due_times: DueTimes
    answering: Answering
    _timer: asyncio.TimerHandle | None = None
    _timer_unix_ms: int = 0

    def watch(self, entry: Entry) -> None:
        """Watch the deadlines of a new request, or of one whose client has resumed."""
        if entry.for_person:
            return
        self.due_times.add(entry)
        self._set(entry.deadline.first_token_unix_ms)

    def _set_next(self) -> None:
        """Set the timer for the next deadline. Retry after a fault, because all deadlines depend on it."""
        with contained("task") as setting:
            if (due_unix_ms := self.due_times.next_unix_ms()) is not None:
                self._set(due_unix_ms)
        if setting.error is not None:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._set_next)

    def _set(self, due_unix_ms: int) -> None:
        """Set the timer unless it is already set for an earlier time."""
        if self._timer is not None:
            if self._timer_unix_ms <= due_unix_ms:
                return
            self._timer.cancel()
        self._timer_unix_ms = due_unix_ms
        delay_s = max(0.0, (due_unix_ms - now_unix_ms()) / 1_000)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._end_late)

    def _end_late(self) -> None:
        self._timer = None
        now = now_unix_ms()
        with contained("task"):
            for entry in self.due_times.late(now):
                with contained("answer", request_id=entry.response_id) as ending:
                    self._expire(entry, now)
                if ending.error is not None:
                    self.answering.fail(entry)
        self._set_next()

    def _expire(self, entry: Entry, now: float) -> None:
        """End an answer whose deadline has passed: keep visible text, otherwise answer from the FAQ."""
        if entry.answer.visible:
            self.answering.end(entry, endings.cut(entry, now))
        else:
            self.answering.fall_back(entry, "deadline")
        self.answering.stop_worker(entry)
