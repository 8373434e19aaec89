"""Watch the deadlines of all answers with one event-loop timer, set for the earliest."""

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.request import endings
from gateway.request.entry import Entry
from gateway.request.inflight import DueTimes
from gateway.serving.answering import Answering
from shared.process.clock import now_unix_ms
from shared.telemetry.faults import contained

_AGAIN_S: Final = 0.05


@dataclass(slots=True, kw_only=True)
class Deadlines:
    """Owned by the gateway's event loop."""

    due_times: DueTimes
    answering: Answering
    _timer: asyncio.TimerHandle | None = None
    _timer_unix_ms: int = 0

    def watch(self, entry: Entry) -> None:
        """Watch the deadlines of a new request, or of one whose client has resumed."""
        self._set(self.due_times.add(entry))

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
