"""Invariants that no client can see, judged at the brokers, the stores and the schedule. By name:

ERASED: nothing is told after the confirmed erasure of its conversation. COMMITTED: at each commit every request that is
passed has an acknowledged `chat.done`; one that is too late by the clock of whoever reads it needs none, for its
gateway has cut it. SERVED: each record of a service is answered, or is a dead letter. HANDED: whoever was told that a
person comes stands in the topic that people read. UNREMEMBERED: where Redis was well and no process ended, each whole
answer is a turn of its conversation. CUT: where workers only come and go, no answer ends by a deadline that is far.
SPIN: no process computes without end. CRASHED: none ends by a fault of its own. UNHANDLED: none has an exception that
nobody hears.
"""

from collections import defaultdict
from typing import Final

from shared.conversation.session_key import SessionKey
from shared.wire.codec import decode_reply, decode_request
from shared.wire.messages import ReplyDone
from tests.chaos.ledger.requests import Ledger, Page
from tests.world.kafka.broker import Kafka
from tests.world.plan import Plan
from tests.world.redis import Redis

_DEADLY: Final = ("kill-", "stop-", "redis-")
_FAR_MS: Final = 500
_SPINS: Final = 2
_WHOLE: Final = ("stop", "max_output_tokens")
_TENANT: Final = "demo"


class Oracles:
    """What was found, by invariant."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._read: dict[tuple[str, int], int] = {}
        self._ended: set[str] = set()
        self.clock_off_ms = 0.0
        self.found: dict[str, list[str]] = defaultdict(list)

    def breach(self, name: str, what: str) -> None:
        """Note what must not be."""
        self.found[name].append(what)

    def committed(self, topic: str, number: int, before: int, offset: int) -> None:
        """Judge a commit before it counts."""
        if not topic.startswith("chat.requests.") or offset <= before:
            return
        log = self._kafka.logs[topic, number]
        now_ms = self._kafka.loop.world.wall_s() * 1_000 + self.clock_off_ms
        requests = [decode_request(record.value) for record in log.records(before, offset)]
        wanted = {request.id for request in requests if (request.deadline_unix_ms or 0) > now_ms}
        if wanted - self._ended:
            self._read_ends()
        for request_id in sorted(wanted - self._ended):
            self.breach("COMMITTED", f"{request_id}: passed at {topic}/{number} by {offset}, its end not acknowledged")

    def _read_ends(self) -> None:
        for log in (*self._kafka.log("chat.replies"), *self._kafka.log("chat.replies.external")):
            key = log.topic, log.number
            for record in log.records(self._read.get(key, 0), log.high):
                reply = decode_reply(record.value)
                if isinstance(reply, ReplyDone):
                    self._ended.add(reply.request_id)
            self._read[key] = log.high

    def served(self, request_ids: list[str]) -> list[str]:
        """Return which of the services' records have no answer."""
        self._read_ends()
        dead = {
            record.key.decode()
            for log in self._kafka.log("chat.dead-letters")
            for record in log.records(0, log.high)
            if record.key
        }
        return [each for each in request_ids if each not in self._ended and each not in dead]

    def handed(self, handoff_id: str) -> None:
        """Judge what a client was told of a person."""
        records = (record for log in self._kafka.log("chat.handoffs") for record in log.records(0, log.high))
        if not any(handoff_id.encode() in record.value for record in records):
            self.breach("HANDED", f"{handoff_id}: told, and in no acknowledged record")

    def schedule(self, spins: dict[str, int]) -> None:
        """Judge who computed without end."""
        for name, times in spins.items():
            if times >= _SPINS:
                self.breach("SPIN", f"{name} for {times / 10:.1f} s")

    def memory(self, plan: Plan, ledger: Ledger, redis: Redis) -> None:
        """Judge what the conversations' turns hold."""
        if any(fault.kind.startswith(_DEADLY) for fault in plan.faults) or any(
            act.what == "erase" for act in plan.acts
        ):
            return
        for page in _whole(ledger):
            turns = redis.values(SessionKey(_TENANT, page.question.session).of("turns"))
            if not any((page.response_id or "").encode() in turn for turn in turns):
                self.breach("UNREMEMBERED", f"{page.question.event_id} of {page.question.session}")

    def cuts(self, plan: Plan, ledger: Ledger) -> None:
        """Judge who was cut."""
        if not all(fault.kind in ("join-worker", "stop-worker") for fault in plan.faults):
            return
        for page in ledger.pages.values():
            end = page.ends[0][1] if page.ends else None
            if (
                end is not None
                and end.reason == "deadline"
                and (end.timings.total_ms or 0) < page.question.deadline_ms - _FAR_MS
            ):
                told = f"{page.question.event_id}: after {end.timings.total_ms:.0f} of {page.question.deadline_ms} ms"
                self.breach("CUT", f"{told}, with {len(end.output_text)} characters")


def _whole(ledger: Ledger) -> list[Page]:
    ended = [page for page in ledger.pages.values() if page.ends]
    return [page for page in ended if page.ends[0][1].reason in _WHOLE and page.ends[0][1].source == "model"]
