"""Check the gateways' admission decisions against the same rules that the gateways apply."""

import asyncio
from typing import Any

from gateway.destination.admission import Admission
from gateway.destination.breaker import BreakerState
from gateway.kafka.request_publisher import RequestPublisher
from gateway.request.entry import Entry
from shared.process.clock import now_unix_ms
from tests.world.oracles import Oracles, kafka_ails, redis_ails
from tests.world.tokens import TENANTS
from tests.world.virtual.node import NODE

_FEWEST_LATE = 5


def watch(oracles: Oracles) -> None:
    """Check each admission decision, and the order in which a conversation's questions are sent."""
    decide, enqueue = Admission.decide, RequestPublisher.enqueue

    def decided(self: Any, request_id: str, tenant: str, bucket: Any, deadline: Any, **given: Any) -> Any:
        NODE.get().admission = self
        now, reader = given["now_unix_ms"], self.fleet._readers.get((bucket, given["partition"]))
        wait_ms = (
            reader.eta_ms(bucket, now, cold=given.get("cold", False))
            if reader is not None and self.fleet._fresh(reader, now)
            else None
        )
        floods = _floods(self, tenant)
        decision = decide(self, request_id, tenant, bucket, deadline, **given)
        if wait_ms is not None and decision.eta_ms != now - given["received_unix_ms"] + wait_ms:
            oracles.breach("OUTLOOK", f"{request_id}: {decision.eta_ms} ms, where its worker says {wait_ms} ms")
        if floods and decision.fallback is None:
            oracles.breach("SHARES", f"{request_id} of {tenant}, which has all the slots")
        idle = len(self._shares) * 2 < self.fleet.slots and not oracles.plan.presses
        if decision.fallback is not None and idle and not oracles.plan.faults:
            oracles.breach("SHED", f"{request_id}: {decision.fallback}, and nothing is wrong")
        return decision

    def enqueued(self: Any, entry: Any, now_unix_ms: float) -> Any:
        sent = NODE.get().sent
        before = sent.get(entry.request.session, entry)
        if before.request.received_unix_ms > entry.request.received_unix_ms and not kafka_ails(oracles.plan):
            oracles.breach("OVERTAKEN", f"{entry.request.event_id} by {before.request.event_id}")
        sent[entry.request.session] = entry
        _judge_place(entry, oracles)
        return enqueue(self, entry, now_unix_ms)

    for owner, name, method in ((Admission, "decide", decided), (RequestPublisher, "enqueue", enqueued)):
        setattr(owner, name, method)


def _judge_place(entry: Entry, oracles: Oracles) -> None:
    """Check that a question goes to the partition of its conversation's open questions, at any gateway. A question that
    was asked at two gateways is open until its end has been sent at either of them. One that was erased with its
    conversation keeps nothing: the next question begins a new one, of which Redis has no partition."""
    now_s, to = asyncio.get_running_loop().time(), entry.publication.destination
    placed = oracles.placed.setdefault(entry.request.session, [])
    ended = {other.response_id for _, _, other in placed if other.answer.done}
    placed[:] = [each for each in placed if each[0].alive and each[1] > now_s and each[2].response_id not in ended]
    for _, _, other in placed:
        there = other.publication.destination
        same = (there.lane, there.revision, there.epoch) == (to.lane, to.revision, to.epoch)
        same = same and other.request.generation == entry.request.generation
        if same and there.partition != to.partition and not redis_ails(oracles.plan):
            oracles.breach("OVERTAKEN", f"{entry.request.event_id} is not where {other.request.event_id} is open")
    left_ms = entry.deadline.deadline_unix_ms - now_unix_ms()
    placed.append((NODE.get(), now_s + left_ms / 1_000, entry))


def _floods(admission: Any, tenant: str) -> bool:
    """Return whether one tenant holds at least all the fleet's slots while every tenant has requests."""
    shares, slots = admission._shares, admission.fleet.slots
    alone = len({*shares._asked_unix_ms, tenant}) < len(TENANTS)
    return bool(slots and not alone and len(shares) >= slots and shares._held[tenant] == len(shares))


def judge_breakers(admission: Any, oracles: Oracles) -> None:
    """Check that no breaker is closed while many words are late."""
    owners = (*admission.fleet._owners.values(), *admission.fleet._known.values())
    for breaker in (admission.breaker, *(owner.breaker for owner in owners)):
        policy = breaker._policy
        enough = breaker.words >= policy.fewest_words and breaker.late >= _FEWEST_LATE
        too_late = enough and breaker.late * 100 > breaker.words * policy.late_per_hundred
        if too_late and breaker.state is BreakerState.CLOSED:
            oracles.breach("BREAKER", f"{breaker.late} of {breaker.words} words are late, and all is let through")
