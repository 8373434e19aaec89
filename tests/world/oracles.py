"""Invariants that no client can see, judged at the brokers, the stores and the schedule. By name:

COMMITTED: at each commit every request that is passed has an acknowledged `chat.done`; one that is too late by the
clock of whoever reads it needs none, for its gateway has cut it. CRASHED: no process ends by a fault of its own. CUT:
where workers only come and go, no answer ends by a deadline that is far. DEAD: what is no request is passed only when
its dead letter is acknowledged. ERASED: nothing is told after the confirmed erasure of its conversation. FORGOTTEN:
nor does Redis hold a turn of it, nor Redis or a worker its KV. HANDED: whoever was told that a person comes stands in
the topic that people read. HUNG: a worker whose engine hangs while it serves ends by itself. NAMED: no two
conversations' or tenants' KV has one name. POISON: a record ends four processes at most, and no other is called poison.
RATE: a flood is refused. SERVED: each request of a service is answered. SOFT: whoever is there is shown
something by the soft deadline. SPIN: no process computes without end. UNHANDLED: none has an exception that nobody
hears. UNREMEMBERED: where Redis was well and no process ended, each whole answer is a turn of its conversation. WASTED:
nothing late or cancelled is computed on.
"""

from collections import defaultdict
from typing import Any, Final

from shared.conversation.session_key import SessionKey
from shared.errors import ProtocolError
from shared.records.deliveries import MOST
from shared.wire.codec import decode_reply, decode_request
from shared.wire.messages import ReplyDone
from shared.wire.topics import DEAD_ORIGIN, DEAD_REASON
from tests.chaos.ledger.requests import Ledger, Page
from tests.chaos.ledger.rights import Oracle
from tests.chaos.ledger.verdict import GRACE_S
from tests.world.kafka.broker import Kafka
from tests.world.plan import Plan
from tests.world.redis import Redis

_DEADLY: Final = ("kill-", "stop-", "hang-", "redis-")
_FAR_MS: Final = 500
_HOLDS_UP: Final = ("freeze-worker", "hang-", "clock")
_KAFKA_AILS: Final = ("slow-", "broker-", "move-", "stale-")
_ENDS_WORKERS: Final = ("kill-worker", "hang-worker", "freeze-worker")
_LATE_MS: Final = 300
_HEARD_MS: Final = 1_500
_SPINS: Final = 2
_WHOLE: Final = ("stop", "max_output_tokens")
_TENANT: Final = "demo"


class Oracles:
    """What was found, by invariant."""

    def __init__(self, kafka: Kafka, redis: Redis, rights: Oracle) -> None:
        self._kafka, self._redis, self._rights = kafka, redis, rights
        self._read: dict[tuple[str, int], int] = {}
        self._ended: set[str] = set()
        self._deaths = 0
        self.clock_off_ms = 0.0
        self.found: dict[str, list[str]] = defaultdict(list)

    def judge(self, plan: Plan, ledger: Ledger, request_ids: list[str]) -> None:
        """Judge what is left in the end; `request_ids` are those of the services."""
        self._schedule(plan)
        self._poison(plan)
        self._memory(plan, ledger)
        self._names()
        self._soft(ledger)
        self._cuts(plan, ledger)
        for request_id in self.unserved(request_ids):
            self.breach("SERVED", f"{request_id}: no answer")

    def died(self) -> None:
        """Note that poison has ended a process."""
        self._deaths += 1

    def breach(self, name: str, what: str) -> None:
        """Note what must not be."""
        self.found[name].append(what)

    def committed(self, topic: str, number: int, before: int, offset: int) -> None:
        """Judge a commit before it counts."""
        if not topic.startswith("chat.requests.") or offset <= before:
            return
        log = self._kafka.logs[topic, number]
        now_ms = self._kafka.loop.world.wall_s() * 1_000 + self.clock_off_ms
        wanted = set[str]()
        for record in log.records(before, offset):
            try:
                request = decode_request(record.value)
            except ProtocolError:
                self._dead(f"{topic}/{number}/{record.offset}")
            else:
                if (request.deadline_unix_ms or 0) > now_ms:
                    wanted.add(request.id)
        if wanted - self._ended:
            self._read_ends()
        for request_id in sorted(wanted - self._ended):
            self.breach("COMMITTED", f"{request_id}: passed at {topic}/{number} by {offset}, its end not acknowledged")

    def _dead(self, origin: str) -> None:
        """Judge a commit that passes what is no request."""
        if origin not in self._letters():
            self.breach("DEAD", f"{origin}: passed, and no dead letter of it is acknowledged")

    def _letters(self) -> dict[str, str]:
        """Return the reason of each dead letter, by its record's place."""
        records = (record for log in self._kafka.log("chat.dead-letters") for record in log.records(0, log.high))
        headers = [dict(record.headers) for record in records]
        return {each[DEAD_ORIGIN].decode(): each[DEAD_REASON].decode() for each in headers}

    def _poison(self, plan: Plan) -> None:
        """Judge how many processes poison has ended, and who was taken for it where nothing else ended any."""
        num_poisons = sum(ask.what == "poison" for ask in plan.asks)
        if self._deaths > MOST * num_poisons:
            self.breach("POISON", f"{self._deaths} processes died of {num_poisons} records")
        called = [origin for origin, reason in self._letters().items() if reason == "poison"]
        if len(called) > num_poisons and not _any(plan, _ENDS_WORKERS):
            self.breach("POISON", f"{called} are called so, and {num_poisons} are")

    def forgotten(self, session: str, erased: list[Page]) -> None:
        """Judge what is left of an erased conversation."""
        turns = self._redis.values(SessionKey(_TENANT, session).of("turns"))
        for page in erased:
            if any((page.response_id or page.question.event_id).encode() in turn for turn in turns):
                self.breach("FORGOTTEN", f"{page.question.event_id}: a turn of its conversation after the erasure")

        heard = [node.kv for node in self._kafka.loop.nodes if node.alive and node.kv is not None]
        for page in erased:
            if page.asked_again:  # perhaps after it
                continue
            kv = self._rights.kv(page.question)
            if any(kv in value for _, _, value in self._redis.kv()):
                self.breach("FORGOTTEN", f"{page.question.event_id}: its KV is in Redis after the erasure")
            if any(kv in entry.value for cache in heard for entry in cache._host._entries.values()):
                self.breach("FORGOTTEN", f"{page.question.event_id}: its KV is in memory after the erasure")

    def _names(self) -> None:
        """Judge what the KV is called: no two conversations' or tenants' blocks may have one name."""
        owners: dict[bytes, str] = {}
        for owner, name, _ in self._redis.kv():
            if owners.setdefault(name, owner) != owner:
                self.breach("NAMED", f"{name.hex()}: KV of {owner} and of {owners[name]}")

    def answered(self, plan: Plan, said: dict[str, Any]) -> None:
        """Judge a worker's line of an answer: nobody computes for long what is late or cancelled."""
        if said.get("event") != "answered" or said.get("reason") not in _WHOLE or _any(plan, _HOLDS_UP):
            return
        if said["slack_ms"] < -_LATE_MS:
            self.breach("WASTED", f"{said['request_id']}: computed on until {-said['slack_ms']} ms after its deadline")
        since_ms = self._kafka.loop.world.wall_s() * 1_000 - _HEARD_MS
        for log in () if kafka_ails(plan) else self._kafka.log("chat.cancels"):
            for record in log.records(0, log.high):
                if (record.key or b"").decode() == said["request_id"] and record.timestamp < since_ms:
                    self.breach("WASTED", f"{said['request_id']}: computed on after it was cancelled")

    def _soft(self, ledger: Ledger) -> None:
        """Judge when each who was there was shown something first."""
        for page in ledger.pages.values():
            away = ledger.absences.get(page.question.session, ())
            shown_s = next((line.at_s for line in page.lines if line.what.startswith(("delta", "done"))), None)
            due_s = page.asked_s + page.question.first_token_ms / 1_000
            if (
                shown_s is None
                or page.asked_again
                or any(each.until_s is None or each.until_s > page.asked_s for each in away)
            ):
                continue
            if shown_s > due_s + GRACE_S:
                self.breach(
                    "SOFT",
                    f"{page.question.event_id}: nothing shown until {shown_s - due_s:.3f} s after its soft deadline",
                )

    def _read_ends(self) -> None:
        for log in (*self._kafka.log("chat.replies"), *self._kafka.log("chat.replies.external")):
            key = log.topic, log.number
            for record in log.records(self._read.get(key, 0), log.high):
                reply = decode_reply(record.value)
                if isinstance(reply, ReplyDone):
                    self._ended.add(reply.request_id)
            self._read[key] = log.high

    def unserved(self, request_ids: list[str]) -> list[str]:
        """Return which of the services' records have no answer."""
        self._read_ends()
        return [each for each in request_ids if each not in self._ended]

    def handed(self, handoff_id: str) -> None:
        """Judge what a client was told of a person."""
        records = (record for log in self._kafka.log("chat.handoffs") for record in log.records(0, log.high))
        if not any(handoff_id.encode() in record.value for record in records):
            self.breach("HANDED", f"{handoff_id}: told, and in no acknowledged record")

    def _schedule(self, plan: Plan) -> None:
        """Judge who computed without end, and who stayed though its engine hung."""
        loop = self._kafka.loop
        for name, times in loop.spins.items():
            if times >= _SPINS:
                self.breach("SPIN", f"{name} for {times / 10:.1f} s")
        for node in loop.nodes:
            if node.timed_out and node.serves and not kafka_ails(plan):
                self.breach("HUNG", f"{node.name}: did not end by itself though its engine hung")

    def _memory(self, plan: Plan, ledger: Ledger) -> None:
        """Judge what the conversations' turns hold."""
        if any(fault.kind.startswith(_DEADLY) for fault in plan.faults) or any(
            act.what == "erase" for act in plan.acts
        ):
            return
        for page in _whole(ledger):
            turns = self._redis.values(SessionKey(_TENANT, page.question.session).of("turns"))
            if not any((page.response_id or "").encode() in turn for turn in turns):
                self.breach("UNREMEMBERED", f"{page.question.event_id} of {page.question.session}")

    def _cuts(self, plan: Plan, ledger: Ledger) -> None:
        """Judge who was cut."""
        if self._deaths or not all(fault.kind in ("join-worker", "stop-worker") for fault in plan.faults):
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


def kafka_ails(plan: Plan) -> bool:
    """Return whether anything is to strike the brokers."""
    return _any(plan, _KAFKA_AILS)


def _any(plan: Plan, kinds: tuple[str, ...]) -> bool:
    return any(fault.kind.startswith(kinds) for fault in plan.faults)
