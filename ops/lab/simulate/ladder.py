"""Virtual time with lanes: the workers of several lanes behind one gateway, on the same cores or on a machine each.

On the same cores a step takes twice as long while two compute. A request that a scheduler gives up is placed again, as
`gateway/serving/sending.py` does.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gateway.destination.choose import View, below, choose
from gateway.destination.destination import Destination, Question
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from ops.lab.simulate.simulated_worker import SimulatedWorker
from ops.traces.trace import Request, Trace
from ops.virtual_worker.simulator import (
    Ending,
    Learns,
    Run,
    SimulatedOutcome,
    deadline_of,
    first_text_ms,
    outcome_of,
    sequence_of,
)
from shared.versions.state import State
from shared.wire.lanes import Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey
from workers.schedule.sequence import Finished

_NO_RULE: Final = State()


@dataclass(slots=True, kw_only=True, eq=False)
class LadderWorker(SimulatedWorker):
    """A lane's worker. `learns` gets the durations of its calls. A request of a bucket in `longer` has this many
    times the tokens for it."""

    lane: Lane
    learns: Learns
    longer: Mapping[Bucket, float] = field(default_factory=dict)

    def seen(self, request: Request) -> Request:
        """Return a request with the tokens that it has for this worker."""
        times = self.longer.get(request.bucket, 1.0)
        return replace(
            request,
            prompt_tokens=round(request.prompt_tokens * times),
            output_tokens=round(request.output_tokens * times),
        )


@dataclass(slots=True, kw_only=True)
class LadderSimulator:
    """`workers` from the top of the ladder down; those of one lane read a partition each, in this order. `state` has
    the rule that names a conversation's lane. `is_shared`: all workers compute on the same cores. `ended` is called
    with each request's destination and end; a request that no workers get has that of the rule, or the champion's if it
    was diverted."""

    trace: Trace
    workers: Sequence[LadderWorker]
    admissions: LaneAdmissions
    ladder: Ladder
    hints: bool = True
    state: State = _NO_RULE
    is_shared: bool = True
    ended: Callable[[Destination, Ending], None] = lambda _to, _ending: None
    by_lane: Counter[str] = field(default_factory=Counter)
    asked_by_rule: Counter[str] = field(default_factory=Counter)
    _endings: list[Ending | None] = field(default_factory=list)
    _sent: dict[int, Destination] = field(default_factory=dict)
    _offered: int = 0
    _busy_ms: float = 0.0

    def run(self) -> Run:
        """Run until every request has ended; `by_lane` then counts the answers in time, `asked_by_rule` the requests of
        each lane that the rule names."""
        while self.advance() is not None:
            pass
        endings = [ending for ending in self._endings if ending is not None]
        assert len(endings) == len(self.trace.requests), "a scheduler holds requests and does nothing"
        return Run(endings=endings, busy_ms=self._busy_ms, rows_histogram=self.workers[0].engine.rows_histogram)

    def advance(self) -> float | None:
        """Advance to the next arrival or end of a step; return its time, None once every request has ended."""
        self._endings = self._endings or [None] * len(self.trace.requests)
        now_ms = self._next_ms()
        if now_ms is None:
            return None
        for worker in self.workers:
            if worker.step is not None and worker.ends_ms <= now_ms:
                self._complete(worker, now_ms)
        while self._offered < len(self.trace.requests) and self._arrival_ms() <= now_ms:
            self._place(self._offered)
            self._offered += 1
        for worker in self.workers:
            if worker.step is None:
                self._begin(worker, now_ms)
        return now_ms

    def _arrival_ms(self) -> float:
        return self.trace.requests[self._offered].arrival_ms

    def _next_ms(self) -> float | None:
        ends = [worker.ends_ms for worker in self.workers if worker.step is not None]
        arrivals = [self._arrival_ms()] if self._offered < len(self.trace.requests) else []
        return min([*ends, *arrivals], default=None)

    def _place(self, index: int) -> None:
        request = self.trace.requests[index]
        question = _question(index, request)
        lane, state = self.state.lane(question.session), self.state
        wanted = Destination(lane, state.revision(lane), state.epoch or None, bucket=request.bucket)
        self.asked_by_rule[wanted.lane] += 1
        where = choose(question, wanted, self._view(request.arrival_ms))
        if isinstance(where, Destination):
            self._post(index, where)
        else:
            ending = Ending(
                request=request,
                outcome=SimulatedOutcome.FALLBACK,
                first_token_ms=None,
                released_ms=request.arrival_ms,
                num_rows=0,
            )
            self._record(index, where.wanted, ending)

    def _view(self, now_ms: float) -> View:
        return View(
            now_unix_ms=now_ms,
            state=self.state,
            admissions=self.admissions,
            ladder=self.ladder,
            partition_of=self._partition_of,
        )

    def _partition_of(self, session: SessionKey, _bucket: Bucket, lane: Lane, _claimed: int | None) -> int:
        return zlib.crc32(session.session_id.encode()) % len(self._of(lane))

    def _of(self, lane: Lane) -> list[LadderWorker]:
        return [each for each in self.workers if each.lane == lane]

    def _post(self, index: int, to: Destination) -> None:
        request = self.trace.requests[index]
        worker = self._of(to.lane)[to.partition or 0]
        self._sent[index] = to
        worker.mail.append(sequence_of(index, worker.seen(request), deadline_of(request), hints=self.hints))

    def _begin(self, worker: LadderWorker, now_ms: float) -> None:
        for finished in worker.take_mail(now_ms):
            self._end(worker, finished, now_ms)
        step = worker.scheduler.next_step(now_ms)
        worker.gate.report(worker.scheduler, now_ms)
        if step is None:
            return
        shared = 1 + sum(other.step is not None for other in self.workers if self.is_shared)
        self._busy_ms += worker.begin(step, now_ms, times=shared) / shared
        assert worker.step is not None
        for ms, work in worker.step[1].calls:
            worker.learns.observe(ms, work)

    def _complete(self, worker: LadderWorker, now_ms: float) -> None:
        for finished in worker.complete(now_ms):
            self._end(worker, finished, now_ms)

    def _end(self, worker: LadderWorker, finished: Finished, now_ms: float) -> None:
        sequence = worker.end(finished, now_ms)
        if finished.reason == "infeasible" and sequence.shown_unix_ms is None:
            question = _question(sequence.index, sequence.request)
            to = below(question, self._sent[sequence.index], self._view(now_ms))
            if to is not None:
                self._post(sequence.index, to)
                return
        outcome = outcome_of(sequence, finished, now_ms)
        self.by_lane[worker.lane] += outcome is SimulatedOutcome.IN_DEADLINE
        ending = Ending(
            request=sequence.request,
            outcome=outcome,
            first_token_ms=first_text_ms(sequence, finished, now_ms),
            released_ms=now_ms,
            num_rows=sequence.num_chunks + max(0, sequence.computed - sequence.request.prompt_tokens),
        )
        self._record(sequence.index, self._sent[sequence.index], ending)

    def _record(self, index: int, to: Destination, ending: Ending) -> None:
        self._endings[index] = ending
        self.ended(to, ending)


def _question(index: int, request: Request) -> Question:
    return Question(
        response_id=str(index),
        session=SessionKey(request.tenant, request.session or str(index)),
        deadline=deadline_of(request),
        received_unix_ms=request.arrival_ms,
    )
