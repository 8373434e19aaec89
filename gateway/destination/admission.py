"""Decide whether a request is accepted, and whether it is sent to the workers. Pure.

A request that cannot be accepted is refused with the reason and the time to wait. If the workers cannot answer a
request in time, the fallback answers it, and it never reaches Kafka.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from gateway.destination.breaker import Breaker, BreakerPolicy
from gateway.destination.fleet import Fleet, KnownWorker
from gateway.destination.tenant_shares import TenantShares
from shared.errors import ProtocolError
from shared.nouns import counted
from shared.settings import Settings
from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket, ResponseCreate

_RETRY_AFTER_MS = 1_000
_LEAST_BREAKER_MS: Final = 1_500.0
# The breaker of a whole lane opens only if most first replies are late; a single slow worker has its own breaker.
_MOST_PER_HUNDRED: Final = 50

FallbackReason = Literal["infeasible", "breaker", "share", "held", "memory", "deadline", "worker", "silent", "broker"]


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    max_inflight: int
    max_inflight_per_connection: int
    first_token_ms: int
    deadline_ms: int
    max_deadline_ms: int

    @classmethod
    def of(cls, settings: Settings) -> "AdmissionLimits":
        return cls(
            max_inflight=settings.gateway.max_inflight,
            max_inflight_per_connection=settings.gateway.max_inflight_per_connection,
            first_token_ms=settings.promise.first_token_ms,
            deadline_ms=settings.promise.deadline_ms,
            max_deadline_ms=settings.promise.max_deadline_ms,
        )


def check_inflight(
    limits: AdmissionLimits, *, inflight: int, of_connection: int, draining: bool = False, memory_full: bool = False
) -> None:
    """Raise `ProtocolError` if the gateway has no room for one more open request."""
    if draining:
        raise _overloaded("shutting_down", "this gateway is shutting down; reconnect")
    check_connection(limits, of_connection)
    if inflight >= limits.max_inflight:
        raise _overloaded("queue_full", f"{counted(inflight, 'answer is', 'answers are')} in flight; try again")
    if memory_full:
        raise _overloaded("memory_full", "this gateway has no memory left for another request; try again")


def _overloaded(code: str, message: str) -> ProtocolError:
    return ProtocolError(code, message, kind="overloaded_error", retriable=True, retry_after_ms=_RETRY_AFTER_MS)


def check_connection(limits: AdmissionLimits, of_connection: int) -> None:
    """Raise `ProtocolError` if the connection has its maximum of open answers. The limit bounds its cursors, each of
    which lists all of them."""
    if of_connection >= limits.max_inflight_per_connection:
        raise ProtocolError(
            "too_many_inflight",
            f"{counted(of_connection, 'answer is', 'answers are')} in flight on this connection, "
            f"{limits.max_inflight_per_connection} are allowed; wait for one",
            kind="rate_limit_error",
            retriable=True,
        )


def promise(request: ResponseCreate, limits: AdmissionLimits, now_unix_ms: float) -> Deadline:
    """Return the absolute deadline of a request received now. Raises `ProtocolError` if it exceeds the longest deadline
    allowed."""
    whole_ms = request.deadline_ms if request.deadline_ms is not None else limits.deadline_ms
    if whole_ms > limits.max_deadline_ms:
        raise ProtocolError(
            "invalid_field",
            f"deadline_ms={whole_ms} is above {limits.max_deadline_ms}; it is relative, in milliseconds",
            param="deadline_ms",
        )
    soft_ms = request.first_token_ms if request.first_token_ms is not None else limits.first_token_ms
    promised = Deadline.after(now_unix_ms, first_token_ms=limits.first_token_ms, whole_ms=limits.deadline_ms)
    return Deadline.after(now_unix_ms, first_token_ms=soft_ms, whole_ms=whole_ms).judged_by(promised, now_unix_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """Limits of admission.

    Attributes:
        worker_ttl_ms: a worker is forgotten after this long without a report
        infeasible_ratio: the fallback answers if the predicted time to the first token exceeds the time left by this
            factor
        probe_interval_ms: one request per bucket and interval is sent in spite of that, to test the prediction
    """

    enabled: bool = True
    worker_ttl_ms: float = 3_000.0
    infeasible_ratio: float = 1.25
    probe_interval_ms: float = 1_000.0
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """The result of `Admission.decide`.

    Attributes:
        fallback: why the fallback answers; None if the workers get the request
        eta_ms: predicted time from receipt to the first token; None if no known worker serves the bucket
        worker_id: the worker that reads the partition; empty if unknown
    """

    fallback: FallbackReason | None
    eta_ms: float | None
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request without a reply from a worker yet. `probes` are the breakers of its lane and of its partition's owner,
    each with the half-open episode that the request probes."""

    received_unix_ms: float
    threshold_ms: float
    probes: list[tuple[Breaker, int | None]]
    short: bool

    @property
    def overdue_unix_ms(self) -> float:
        """The time after which the first reply is late."""
        return self.received_unix_ms + self.threshold_ms


class Admission:
    """Admission to one lane, owned by the gateway's event loop. Call `decide` for each request. If the workers get it,
    also call `note_first_reply`, `release` at the answer's end, and `withdraw` if it could not be published."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self.fleet = Fleet(ttl_ms=policy.worker_ttl_ms, breaker=policy.breaker)
        self.breaker = Breaker(replace(policy.breaker, late_per_hundred=_MOST_PER_HUNDRED))
        self._shares = TenantShares()
        self._silent: dict[str, _Sent] = {}
        self._overdue: list[tuple[float, str]] = []

    @property
    def inflight(self) -> int:
        """Return the number of requests with the workers whose answer has not ended."""
        return len(self._shares)

    def decide(
        self,
        request_id: str,
        tenant: str,
        bucket: Bucket,
        deadline: Deadline,
        *,
        partition: int | None,
        received_unix_ms: float,
        now_unix_ms: float,
        cold: bool = False,
        may_divert: bool = False,
    ) -> AdmissionDecision:
        """Decide whether a request is sent to the workers now, and register it if it is.

        Args:
            request_id: the request's id
            tenant: its tenant
            bucket: its bucket
            deadline: its deadline
            partition: the partition of the bucket's topic; None if unknown
            received_unix_ms: when the request was received
            now_unix_ms: the current time
            cold: the lane's workers hold no KV of the conversation
            may_divert: another lane answers what this one cannot answer in time. Then a prediction is only tested on
                an idle worker, which is too slow or predicts wrongly; a busy one has no time.
        """
        self._give_up_waiting(now_unix_ms)
        self.withdraw(request_id)  # the request was erased and is asked again
        self._shares.record_question(tenant, now_unix_ms)
        too_much = self._shares.has_too_much(tenant, self.fleet.slots)
        owed = not may_divert and self._shares.is_owed(tenant)
        owner = self.fleet.owner(bucket, partition)
        reader = self.fleet.reader(bucket, partition, now_unix_ms)
        wait_ms = None if reader is None else reader.eta_ms(bucket, now_unix_ms, cold=cold)
        eta_ms = None if wait_ms is None else now_unix_ms - received_unix_ms + wait_ms
        ratio = 1.0 if may_divert else self._policy.infeasible_ratio
        late = reader if wait_ms is not None and _is_late(wait_ms, deadline, now_unix_ms, ratio) else None
        spared = deadline.promised is not None or (may_divert and late is not None and late.is_busy)
        breakers = self._breakers(owner)
        fallback = self._why_not(bucket, breakers, late, now_unix_ms, too_much=too_much, spared=spared, owed=owed)
        if fallback is None:
            probes = [(each, each.record_send() if self._policy.enabled else None) for each in breakers]
            self._shares.record_accepted(request_id, tenant)
            if reader is not None:
                reader.record_send(bucket, now_unix_ms)
            soft_ms = (deadline.promised or deadline).first_token_unix_ms - received_unix_ms
            threshold_ms = max(_LEAST_BREAKER_MS, 2 * soft_ms)
            sent = _Sent(received_unix_ms, threshold_ms, probes, short=deadline.promised is not None)
            self._silent[request_id] = sent
            heapq.heappush(self._overdue, (received_unix_ms + threshold_ms, request_id))
        return AdmissionDecision(fallback, eta_ms, "" if owner is None else owner.report.worker_id)

    def has_place(self, bucket: Bucket, deadline: Deadline, *, partition: int | None, now_unix_ms: float) -> bool:
        """Return whether the workers could answer a request in time, according to their reports. Registers nothing."""
        reader = self.fleet.reader(bucket, partition, now_unix_ms)
        breakers = self._breakers(self.fleet.owner(bucket, partition))
        if reader is None or not all(each.allows(now_unix_ms) for each in breakers):
            return False
        wait_ms = reader.eta_ms(bucket, now_unix_ms)
        return wait_ms is None or not _is_late(wait_ms, deadline, now_unix_ms, self._policy.infeasible_ratio)

    def note_first_reply(self, request_id: str, now_unix_ms: float) -> float | None:
        """Record a worker's reply. Return the time since receipt if it is the first one, otherwise None."""
        sent = self._silent.pop(request_id, None)
        if sent is None:
            return None
        took_ms = max(0.0, now_unix_ms - sent.received_unix_ms)
        self._measured(sent, took_ms, now_unix_ms)
        return took_ms

    def release(self, request_id: str) -> None:
        """Release a request whose answer has ended."""
        self._shares.release(request_id)

    def withdraw(self, request_id: str) -> None:
        """Remove a request that its client cancelled, that Kafka rejected, or whose id is used again. It counts neither
        for nor against the workers."""
        sent = self._silent.pop(request_id, None)
        for breaker, probe in sent.probes if sent is not None else ():
            breaker.withdraw(probe)

    def _breakers(self, owner: KnownWorker | None) -> list[Breaker]:
        """Return the breakers that a request passes: the lane's, and that of the worker that owns its partition."""
        return [self.breaker] if owner is None else [self.breaker, owner.breaker]

    def _why_not(
        self,
        bucket: Bucket,
        breakers: Sequence[Breaker],
        late: KnownWorker | None,
        now_unix_ms: float,
        *,
        too_much: bool,
        spared: bool,
        owed: bool,
    ) -> FallbackReason | None:
        """Return why the fallback answers; None if it does not.

        Args:
            bucket: the request's bucket
            breakers: those that it passes
            late: the worker that would get the request and reports that it would be too late
            now_unix_ms: the current time
            too_much: its tenant has more than its share of the workers
            spared: the request is not used to test the prediction. One of a client that asked for less time than the
                promise cannot disprove a report.
            owed: the workers owe its tenant time, so it is sent there late
        """
        if not self._policy.enabled:
            return None
        if not all(each.allows(now_unix_ms) for each in breakers):
            return "breaker"
        if too_much:
            return "share"
        interval_ms = self._policy.probe_interval_ms
        in_vain = late is not None and (spared or not late.may_try(bucket, now_unix_ms, interval_ms=interval_ms))
        # The workers would first give up waiting requests of the tenant that has the most, so this one is sent.
        return "infeasible" if in_vain and not owed else None

    def _give_up_waiting(self, now_unix_ms: float) -> None:
        """Count requests as late that have waited too long for their first reply."""
        while self._overdue and self._overdue[0][0] < now_unix_ms:
            overdue_unix_ms, request_id = heapq.heappop(self._overdue)
            sent = self._silent.get(request_id)
            if sent is None or sent.overdue_unix_ms != overdue_unix_ms:  # it was asked again since
                continue
            if sent.short:  # workers skip a record whose deadline has long passed
                self.withdraw(request_id)
            else:
                del self._silent[request_id]
                self._measured(sent, now_unix_ms - sent.received_unix_ms, now_unix_ms)

    def _measured(self, sent: _Sent, took_ms: float, now_unix_ms: float) -> None:
        for breaker, probe in sent.probes:
            breaker.measured(took_ms=took_ms, threshold_ms=sent.threshold_ms, probe=probe, now_unix_ms=now_unix_ms)


def _is_late(wait_ms: float, deadline: Deadline, now_unix_ms: float, ratio: float) -> bool:
    """Return whether a predicted wait exceeds the time left for the first token by this factor."""
    return wait_ms > (deadline.first_token_unix_ms - now_unix_ms) * ratio
