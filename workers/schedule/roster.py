"""The sequences of a worker from intake to their end, waiting and running. Pure, with one owner.

The policy chooses which sequence runs next and which one is given up. Subclasses add what computes them: the scheduler
an engine's slots, the streams an upstream.
"""

import heapq
from collections.abc import Mapping
from itertools import count
from typing import Final

from shared.wire.session_key import SessionKey
from workers.schedule.lengths import SHOWN, OutputLengths
from workers.schedule.outlook import Outlook
from workers.schedule.policy import Policy, RunningLoad
from workers.schedule.sequence import Finished, Phase, Sequence


class Late:
    """Finds sequences whose deadline has passed. `running` are the running sequences by request id."""

    def __init__(self, running: Mapping[str, Sequence]) -> None:
        self._running = running
        self._due: list[tuple[int, int, Sequence]] = []
        self._order = count()

    def watch(self, sequence: Sequence) -> None:
        """Watch a waiting sequence."""
        heapq.heappush(self._due, (sequence.deadline.first_token_unix_ms, next(self._order), sequence))

    def found(self, now_unix_ms: float) -> list[Sequence]:
        """Return the sequences whose time is over; a waiting one is returned only once."""
        late: list[Sequence] = []
        for row in self._running.values():  # `Sequence.expired` inlined: 64 rows for each step
            shown, deadline = row.shown_unix_ms is not None, row.deadline
            if now_unix_ms >= (deadline.deadline_unix_ms if shown else deadline.first_token_unix_ms):
                late.append(row)
        while self._due and self._due[0][0] <= now_unix_ms:
            _, _, sequence = heapq.heappop(self._due)
            if sequence.phase is Phase.WAITING:
                late.append(sequence)
        return late


# Quantiles of the length that is planned for an answer: three in a hundred are longer. Answers of an unknown class are
# planned as short, since a class that seems infeasible would never be learned.
_LENGTH_QUANTILE: Final = 0.97
_HOPED_QUANTILE: Final = 0.2
_NEARLY_NONE: Final = 0.05
_ANY_LENGTH: Final = 1_000_000


class Roster:
    """Owns every sequence of a worker between intake and its terminal event."""

    def __init__(self, policy: Policy, *, lengths: OutputLengths, num_slots: int) -> None:
        self._policy = policy
        self._lengths = lengths
        self._waiting: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._load = RunningLoad(num_slots, self._running.values())
        self._late = Late(self._running)
        self._cancelled: dict[str, None] = {}  # ordered, so that the same events give the same steps

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting or request_id in self._running

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        if sequence.request_id in self:
            raise AssertionError(f"{sequence.request_id} is here already")
        quantile = _LENGTH_QUANTILE if self._lengths.knows(sequence.bucket) else _HOPED_QUANTILE
        sequence.expected_output_tokens = sequence.output_hint or self._lengths.predict(
            sequence.bucket, sequence.max_output_tokens, quantile
        )
        self._waiting[sequence.request_id] = sequence
        self._late.watch(sequence)
        self._policy.add(sequence, now_unix_ms)

    def cancel(self, request_id: str) -> bool:
        """Remove a sequence before the next step; return False if it is not here."""
        if request_id not in self:
            return False
        self._cancelled[request_id] = None
        return True

    def shown(self, sequence: Sequence, now_unix_ms: float) -> None:
        """Record that the first text of a running sequence is shown with its newest token."""
        sequence.shown_unix_ms = now_unix_ms
        if sequence.phase is not Phase.FINISHED:  # otherwise `_remove` has already recorded it
            self._lengths.observe(SHOWN + sequence.bucket, max(len(sequence.output_ids), 1), ended_by_itself=True)

    def sweep(self, now_unix_ms: float) -> list[Finished]:
        """Remove the sequences that are cancelled, too late or given up. Call this before sequences are admitted."""
        cancelled = [self._waiting.get(request_id) or self._running[request_id] for request_id in self._cancelled]
        out = [Finished(sequence, "cancelled", "client") for sequence in cancelled]
        for finished in out:  # a gateway also cancels at the deadline, after its fallback has answered
            self._remove(finished.sequence, missed=finished.sequence.expired(now_unix_ms) or None)
        late = [Finished(sequence, "incomplete", "deadline") for sequence in self._late.found(now_unix_ms)]
        for finished in late:
            self._remove(finished.sequence, missed=True)
        given_up = self._policy.give_up(now_unix_ms, self._load)
        for sequence in given_up:
            self._remove(sequence, missed=True)
        out += late
        out += [Finished(sequence, "incomplete", "infeasible") for sequence in given_up]
        return out

    def wake_unix_ms(self) -> float | None:
        """Return when a sequence may be admitted although none could be and nothing has happened since."""
        return self._policy.wake_unix_ms() if self._waiting else None

    def outlook(self, now_unix_ms: float) -> Outlook | None:
        """Return what a request that arrives now could expect; None if the policy does not look ahead."""
        return self._policy.outlook(now_unix_ms, self._load)

    def finish(self, sequence: Sequence, *, failed: bool = False, by_client: bool = False) -> None:
        """Finish a sequence for a reason that is not in its tokens.

        Args:
            sequence: the sequence.
            failed: a fault in its answer; has no effect if the sequence has already ended.
            by_client: a stop string that its client named, as opposed to the guard.
        """
        if not failed or (sequence.phase is not Phase.FINISHED and sequence.request_id in self):
            by_itself = not failed and not by_client
            self._remove(sequence, ended_by_itself=by_itself, missed=None if by_client else False, failed=failed)

    def withdraw(self, sequence: Sequence) -> None:
        """Remove a sequence that another worker computes."""
        self._remove(sequence, missed=None)

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation: none of its KV is used again."""
        for row in self._running.values():
            row.erased = row.erased or row.session == session
        for sequence in self._waiting.values():
            if sequence.session == session:
                sequence.erase()

    def _run(self, sequence: Sequence, now_unix_ms: float) -> None:
        """Move a sequence from waiting to running."""
        del self._waiting[sequence.request_id]
        self._running[sequence.request_id] = sequence
        sequence.enter(Phase.PREFILL)
        sequence.first_step_unix_ms = now_unix_ms

    def _remove(
        self, sequence: Sequence, *, ended_by_itself: bool = False, missed: bool | None = False, failed: bool = False
    ) -> bool:
        """Remove a sequence and learn from it; return whether it ran.

        Args:
            sequence: the sequence.
            ended_by_itself: its answer is complete.
            missed: whether it missed its deadlines; None to learn nothing.
            failed: its KV in the slot may be wrong.
        """
        del failed  # used by the scheduler
        if missed and sequence.deadline.promised is not None:
            missed = None
        self._cancelled.pop(sequence.request_id, None)
        sequence.enter(Phase.FINISHED)
        sequence.prefix.values = None
        if self._waiting.pop(sequence.request_id, None) is not None:
            self._policy.discard(sequence)
            return False
        del self._running[sequence.request_id]
        self._policy.ended(sequence, missed=missed)
        if missed is not None and (sequence.output_ids or ended_by_itself) and self._teaches(sequence, ended_by_itself):
            num_output = len(sequence.output_ids) + ended_by_itself
            self._lengths.observe(sequence.bucket, num_output, ended_by_itself=ended_by_itself)
            if sequence.shown_unix_ms is None:  # text that was held back is shown at the end
                whole = ended_by_itself or num_output >= sequence.max_output_tokens
                self._lengths.observe(SHOWN + sequence.bucket, num_output, ended_by_itself=whole)
        return True

    def _teaches(self, sequence: Sequence, ended_by_itself: bool) -> bool:
        """Return whether an answer's length is informative: not if its client's limit is below nearly all lengths of
        its class."""
        limit, bucket = sequence.max_output_tokens, sequence.bucket
        if ended_by_itself or len(sequence.output_ids) < limit or not self._lengths.knows(bucket):
            return True
        return limit >= self._lengths.predict(bucket, _ANY_LENGTH, _NEARLY_NONE)
