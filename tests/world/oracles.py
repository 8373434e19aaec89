"""Invariants that no client can observe, checked at the brokers, the stores and the schedule. By name:

BREAKER: no breaker is closed while many words are late. COMMITTED: when a commit passes a request, an end of that
request (`chat.done`) is acknowledged; a request that is late by its reader's clock needs none, because its gateway has
cut it. CRASHED: no process ends through a fault of its code. CUT: while no worker ends, no answer is cut long before
its deadline. DEAD: a commit passes an invalid record only after its dead letter is acknowledged. ERASED: no text of a
conversation is sent after its confirmed erasure. EXPIRED: no message is sent after the expiry of a customer's token.
FORGOTTEN: after a confirmed erasure Redis holds no turn of the conversation, and neither Redis nor a worker holds its
KV. GAP: while workers only join and leave, a started answer continues within 1.5 s. HANDED: each hand-off that a client
was promised is a record in the topic for human agents. HARMED: an exception in our code harms one request, or in an
engine's step the requests in its slots. HUNG: a worker whose engine hangs while it serves ends by itself. NAMED: no two
conversations or tenants share a name of KV. OUTLOOK: a question's outlook is that of the worker that reads its
partition. OVERTAKEN: a conversation's questions are sent in order, and all that are open go to one partition. POISON: a
record ends at most four processes, no valid record is called poison, and deliveries count only if a reader has ended.
QUOTED: no log line contains a customer's words. QUOTA: a client that has used up its minute is refused, and no other
client is. RATE: a flood is refused. REVISION: an answer is entirely the text of the version that it names. SERVED: each
request of a service is answered. SHARES: a tenant that holds all the slots gets no more while another tenant has
requests. SHED: without a fault and with half of the slots free, every question goes to the workers. SOFT: a connected
client is shown text by the soft deadline. SPIN: no process computes without end. STRANGER: no client is accepted
without a valid token or into another client's conversation, and nothing that it asks is published. UNHANDLED: no
process has an unhandled exception. UNREMEMBERED: without a fault of Redis and without an ended process, each complete
answer is a turn of its conversation. UNSEEN: each exception in our code is logged. WASTED: no worker continues a late
or cancelled answer, or opens a late one.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from gateway.request.entry import Entry
from shared.conversation.turn import decode_turn
from shared.errors import ProtocolError
from shared.records.deliveries import MAX_DELIVERIES, CommitMetadata
from shared.telemetry.logs import render_exception
from shared.wire.codec import decode_notice, decode_reply, decode_request
from shared.wire.messages import Adopt, Cancel, ChatRequest, ReplyDone
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS, DEAD_ORIGIN, DEAD_REASON, TopicNames
from tests.chaos.ledger.requests import Ledger, Page, conversation_of
from tests.chaos.ledger.shipped import Shipped
from tests.chaos.ledger.verdict import GRACE_S
from tests.world.kafka.broker import Kafka
from tests.world.kafka.log import Log
from tests.world.plan import MOVES, Fault, Plan
from tests.world.processes import CANARY_REVISION, SLOTS
from tests.world.redis import Redis
from tests.world.throws import SECRET
from tests.world.tokens import conversation
from tests.world.virtual.node import Node

_DEADLY: Final = ("kill-", "stop-", "hang-", "redis-", "throw-")
_EVERYBODYS: Final = (
    "FakeEngine",
    "Scheduler",
    "CostModel",
    "run_step",
)  # a step's exception can come from any of these requests
_TWO_TEXTS: Final = ("join-worker",)  # an answer that would mix two texts fails
_FAR_S: Final = 0.5
_HOLDS_UP: Final = ("freeze-worker", "hang-", "throw-", "clock")
_KAFKA_AILS: Final = ("slow-", "broker-", "move-", "stale-")
_ENDS_WORKERS: Final = ("kill-worker", "hang-worker", "freeze-worker")
_ENDS_READERS: Final = (*_ENDS_WORKERS, "kill-gateway", "freeze-gateway")
_LATE_MS: Final = 300
_HEARD_MS: Final = 1_500
_OPENED_MS: Final = 1_000 + _LATE_MS
_SPINS: Final = 2
_MOST_GAP_S: Final = 1.5
_WHOLE: Final = ("stop", "max_output_tokens")
_CHAMPIONS: Final = [TopicNames().requests(bucket) for bucket in BUCKETS]
_JUDGED_LATER: Final = ("chat.handoffs", "chat.dead-letters", "chat.requests.", "chat.replies")
"""Topics whose records are judged also if retention has deleted them."""
_REQUESTS: Final = [*_CHAMPIONS, *(TopicNames().requests(bucket, "canary") for bucket in BUCKETS)]


class Oracles:
    """The breaches found, by invariant."""

    def __init__(self, kafka: Kafka, redis: Redis) -> None:
        self._kafka, self._redis = kafka, redis
        self._read: dict[tuple[str, int], int] = {}
        self._ended: set[str] = set()
        self._deleted: dict[str, list[Any]] = {}
        self._deaths = self.num_by_canary = 0
        self._answers: list[tuple[float, dict[str, Any]]] = []
        self.placed: dict[SessionKey, list[tuple[Node, float, Entry]]] = {}
        self.thrown: list[Fault] = []
        self._unseen: dict[str, str] = {}
        self.plan = Plan(0)
        self.clock_off_ms = 0.0
        self.found: dict[str, list[str]] = defaultdict(list)

    def judge(self, plan: Plan, ledger: Ledger, request_ids: list[str]) -> None:
        """Check the final state; `request_ids` are those of the services."""
        self._schedule(plan)
        self._poison(plan)
        self._waste(plan)
        self._memory(plan, ledger)
        self._names()
        self._soft(ledger)
        self._gaps(plan, ledger)
        self._cuts(plan, ledger)
        self._harm(ledger)
        unserved = self.unserved(request_ids)
        for request_id in unserved[len(self.thrown) :]:  # an exception may leave a dead letter instead
            self.breach("SERVED", f"{request_id}: no answer")

    def died(self) -> None:
        """Record that poison has ended a process."""
        self._deaths += 1

    def threw(self, node: Node, fault: Fault) -> None:
        """Record an injected exception in a process."""
        self.thrown.append(fault)
        self._unseen[node.name] = fault.call

    def faulted(self, process: str, said: dict[str, Any]) -> None:
        """Check the log line of an error."""
        self._unseen.pop(process, None)
        if SECRET in str(render_exception(None, "", {**said})):
            self.breach("QUOTED", f"{process}: a customer's words are logged")

    def _harm(self, ledger: Ledger) -> None:
        """Check how many requests the exceptions harmed, and that each exception was logged."""
        pages = ledger.pages.values()
        refused = [page.question.event_id for page in pages if page.refused == "internal"]
        failed = [page.question.event_id for page in pages if page.ends and page.ends[0][1].reason == "internal"]
        most = sum(SLOTS if any(each in fault.call for each in _EVERYBODYS) else 1 for fault in self.thrown)
        if len(refused + failed) > most and not _any(self.plan, _TWO_TEXTS):
            self.breach("HARMED", f"{refused} are refused and {failed} fail, by {len(self.thrown)} exceptions")
        for name, call in self._unseen.items():
            self.breach("UNSEEN", f"{name}: no error tells that {call} threw")

    def breach(self, name: str, what: str) -> None:
        """Record a breach."""
        self.found[name].append(what)

    def committed(self, topic: str, number: int, before: int, offset: int, metadata: str) -> None:
        """Check a commit before it takes effect."""
        note = CommitMetadata.decode(metadata)
        if (note.floor or any(count.fatal for count in note.counts.values())) and not (
            self._deaths or kafka_ails(self.plan) or _any(self.plan, _ENDS_READERS)
        ):
            self.breach("POISON", f"{topic}/{number}: {metadata!r}, and no reader has died")
        if not topic.startswith("chat.requests.") or offset <= before:
            return
        log = self._kafka.logs[topic, number]
        now_ms = self._kafka.loop.world.wall_s() * 1_000 + self.clock_off_ms
        wanted = set[str]()
        dead = self._letters() if self.thrown else {}  # an exception leaves a dead letter, and its client is answered
        for record in log.records(before, offset):
            origin = f"{topic}/{number}/{record.offset}"
            try:
                request = decode_request(record.value)
            except ProtocolError:
                self._dead(origin)
            else:
                if (request.deadline_unix_ms or 0) > now_ms and origin not in dead:
                    wanted.add(request.id)
        if wanted - self._ended:
            self._read_ends()
        passed_on = set[str]() if topic in _CHAMPIONS or not wanted - self._ended else self._passed_on()
        for request_id in sorted(wanted - self._ended - passed_on):
            self.breach("COMMITTED", f"{request_id}: passed at {topic}/{number} by {offset}, its end not acknowledged")

    def _passed_on(self) -> set[str]:
        """Return the requests that are in the champion's topics, passed on from a lane or sent there directly."""
        return {request.id for request, _ in self._requests(_CHAMPIONS)}

    def _dead(self, origin: str) -> None:
        """Check a commit that passes an invalid record."""
        if origin not in self._letters():
            self.breach("DEAD", f"{origin}: passed, and no dead letter of it is acknowledged")

    def _letters(self) -> dict[str, str]:
        """Return the reason of each dead letter, by the origin of its record."""
        headers = [dict(record.headers) for record in self._records("chat.dead-letters")]
        return {each[DEAD_ORIGIN].decode(): each[DEAD_REASON].decode() for each in headers}

    def _poison(self, plan: Plan) -> None:
        """Check how many processes poison has ended, and, if no other fault ended a worker, how many records are called
        poison."""
        num_poisons = sum(ask.what == "poison" for ask in (*plan.asks, *plan.records))
        most = MAX_DELIVERIES * (1 + plan.canary)  # a record that is passed on is counted again
        if self._deaths > most * num_poisons:
            self.breach("POISON", f"{self._deaths} processes died of {num_poisons} records")
        called = [origin for origin, reason in self._letters().items() if reason == "poison"]
        if len(called) > num_poisons and not _any(plan, _ENDS_WORKERS):
            self.breach("POISON", f"{called} are called so, and {num_poisons} are")

    def published(self, text: str) -> bool:
        """Return whether a question is in any topic."""
        records = (record for name in _REQUESTS for log in self._kafka.log(name) for record in log.records(0, log.high))
        return any(text.encode() in (record.value or b"") for record in records)

    def forgotten(self, session: str, erased: Collection[str], pages: Iterable[Page], rights: Shipped) -> None:
        """Check what remains of an erased conversation; `erased` are the ids of its answers."""
        for turn in map(decode_turn, self._redis.values(conversation(session).redis_key("turns"))):
            if turn.request_id in erased:  # a later turn may name it as one that was open
                self.breach("FORGOTTEN", f"{turn.request_id}: a turn of its conversation after the erasure")
        heard = [node.kv for node in self._kafka.loop.nodes if node.alive and node.kv is not None]
        for page in [page for page in pages if page.response_id in erased]:
            if page.asked_again:  # perhaps after it
                continue
            for kv in rights.kv(page.question):
                if any(kv in value for _, _, value in self._redis.kv()):
                    self.breach("FORGOTTEN", f"{page.question.event_id}: its KV is in Redis after the erasure")
                if any(kv in entry.value for cache in heard for entry in cache._memory._host._entries.values()):
                    self.breach("FORGOTTEN", f"{page.question.event_id}: its KV is in memory after the erasure")

    def _names(self) -> None:
        """Check the names of KV: no two conversations or tenants may share the name of a block."""
        owners: dict[bytes, str] = {}
        for owner, name, _ in self._redis.kv():
            if owners.setdefault(name, owner) != owner:
                self.breach("NAMED", f"{name.hex()}: KV of {owner} and of {owners[name]}")

    def answered(self, said: dict[str, Any]) -> None:
        """Record a worker's log line about an answer."""
        if said.get("event") == "answered":
            self._answers.append((self._kafka.loop.world.wall_s() * 1_000, said))

    def _waste(self, plan: Plan) -> None:
        """Check that no worker computed a late or cancelled answer for long, or opened one that no client awaited."""
        notices = [(decode_notice(record.value), record.timestamp) for record in self._records("chat.cancels")]
        others = Counter(notice.request_id for notice, _ in notices if isinstance(notice, Adopt))
        others.update(request.id for request, _ in self._requests())
        cancels = {notice.request_id: at_ms for notice, at_ms in notices if isinstance(notice, Cancel)}
        num_ends = sum(fault.kind.endswith("worker") for fault in plan.faults) + self._deaths
        calm = num_ends < 2 and not kafka_ails(plan)  # else a record may wait to be computed alone
        for at_ms, said in () if _any(plan, _HOLDS_UP) else self._answers:
            name, whole = said["request_id"], said["reason"] in _WHOLE
            if said["slack_ms"] < -(_LATE_MS if whole else _OPENED_MS) and (whole or calm):
                self.breach("WASTED", f"{name}: {said['reason']} {-said['slack_ms']} ms after its deadline")
            alone = others[name] == 1 and not (
                kafka_ails(plan) or self._deaths or _any(plan, ("kill-", "stop-", "join-", *MOVES))
            )
            if whole and alone and cancels.get(name, at_ms) < at_ms - _HEARD_MS:
                self.breach("WASTED", f"{name}: computed on after it was cancelled")

    def _records(self, topic: str) -> Iterator[Any]:
        yield from self._deleted.get(topic, ())
        for log in self._kafka.log(topic):
            yield from log.records(0, log.high)

    def ends(self) -> Iterator[ReplyDone]:
        """Yield each end that is in Kafka."""
        for record in self._records("chat.replies"):
            if isinstance(reply := decode_reply(record.value), ReplyDone):
                yield reply

    def requests(self) -> list[ChatRequest]:
        """Return the requests in the workers' topics, in the order of the records' times."""
        found = sorted(self._requests(), key=lambda each: each[1].timestamp)
        return [request for request, _ in found]

    def _requests(self, topics: Sequence[str] = _REQUESTS) -> Iterator[tuple[ChatRequest, Any]]:
        """Yield the valid requests in the buckets' topics."""
        for topic in topics:
            for record in self._records(topic):
                with suppress(ProtocolError):
                    yield decode_request(record.value), record

    def _soft(self, ledger: Ledger) -> None:
        """Check when each connected client was first shown text."""
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

    def _gaps(self, plan: Plan, ledger: Ledger) -> None:
        """Check for how long each answer had no progress while its customer was connected."""
        pages = [page for page in ledger.pages.values() if not ledger.absences.get(page.question.session)]
        for page in pages if plan.only_scaled and not self._deaths else ():
            gap_s = max((later - sooner for sooner, later in pairwise(page.running_s)), default=0.0)
            if gap_s > _MOST_GAP_S:
                self.breach("GAP", f"{page.question.event_id}: {gap_s:.3f} s without a token")

    def _read_ends(self) -> None:
        for log in (*self._kafka.log("chat.replies"), *self._kafka.log("chat.replies.external")):
            key = log.topic, log.number
            for record in log.records(self._read.get(key, 0), log.high):
                reply = decode_reply(record.value)
                if isinstance(reply, ReplyDone):
                    self._ended.add(reply.request_id)
            self._read[key] = log.high

    def retaining(self, log: Log, end: int) -> None:
        """Keep the records that retention is about to delete; their requests need no answer after that."""
        self._read_ends()
        if log.topic.startswith(_JUDGED_LATER):
            self._deleted.setdefault(log.topic, []).extend(log.records(log.start, end))
        for record in log.records(log.start, end) if log.topic.startswith("chat.requests") else ():
            with suppress(ProtocolError):
                self._ended.add(decode_request(record.value).id)

    def unserved(self, request_ids: list[str]) -> list[str]:
        """Return the services' records that have no answer."""
        self._read_ends()
        return [each for each in request_ids if each not in self._ended]

    def handed(self, handoff_id: str) -> None:
        """Check a hand-off that a client was promised."""
        if not any(handoff_id.encode() in record.value for record in self._records("chat.handoffs")):
            self.breach("HANDED", f"{handoff_id}: told, and in no acknowledged record")

    def _schedule(self, plan: Plan) -> None:
        """Check for processes that computed without end, or that stayed although their engine hung."""
        loop = self._kafka.loop
        for name, times in loop.spins.items():
            if times >= _SPINS:
                self.breach("SPIN", f"{name} for {times / 10:.1f} s")
        for node in loop.nodes:
            if node.timed_out and node.serves and not kafka_ails(plan):
                self.breach("HUNG", f"{node.name}: did not end by itself though its engine hung")

    def _memory(self, plan: Plan, ledger: Ledger) -> None:
        """Check the turns that the conversations' memory holds."""
        if _any(plan, _DEADLY):
            return
        erased = {act.customer for act in plan.acts if act.what.startswith("erase")}
        for page in [page for page in _whole(ledger) if conversation_of(page.question.session) not in erased]:
            turns = self._redis.values(conversation(page.question.session).redis_key("turns"))
            if not any((page.response_id or "").encode() in turn for turn in turns):
                self.breach("UNREMEMBERED", f"{page.question.event_id} of {page.question.session}")

    def judge_revisions(self, ledger: Ledger, rights: Shipped) -> None:
        """Check that each answer is entirely the text of the version that it names."""
        for page in ledger.pages.values():
            response = page.ends[0][1] if page.ends else None
            if response is None or response.source != "model" or response.revision is None:
                continue
            self.num_by_canary += response.revision == CANARY_REVISION
            if not rights.says(page, response.revision):
                told = f"{page.question.event_id}: {response.output_text!r}"
                self.breach("REVISION", f"{told} names {response.revision}, which writes none of it")

    def _cuts(self, plan: Plan, ledger: Ledger) -> None:
        """Check the time at which answers were cut, by the client's own clock."""
        moves = kafka_ails(plan) or _any(plan, ("clock", *_ENDS_WORKERS))  # the next worker may derive another deadline
        for page in () if self._deaths or moves else ledger.pages.values():
            early_s = page.due_s - page.ends[0][0] if page.ends else 0.0
            if early_s > _FAR_S and page.ends[0][1].reason == "deadline":
                told = f"{page.question.event_id}: {early_s:.3f} s before its deadline"
                self.breach("CUT", f"{told}, with {len(page.ends[0][1].output_text)} characters")


def _whole(ledger: Ledger) -> list[Page]:
    ended = [page for page in ledger.pages.values() if page.ends]
    return [page for page in ended if page.ends[0][1].reason in _WHOLE and page.ends[0][1].source == "model"]


def kafka_ails(plan: Plan) -> bool:
    """Return whether the plan has a fault of the brokers."""
    return _any(plan, _KAFKA_AILS)


def redis_ails(plan: Plan) -> bool:
    """Return whether the plan has a fault of Redis."""
    return _any(plan, ("redis-",))


def _any(plan: Plan, kinds: tuple[str, ...]) -> bool:
    return any(fault.kind.startswith(kinds) for fault in plan.faults)
