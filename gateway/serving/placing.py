"""Give each question the partition of its conversation: by the workers' slack, noted in Redis for every gateway
(docs/decisions/0036)."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.admission.lanes import LaneAdmissions
from gateway.admission.partitions import Chosen, Known, Offer, Why, offer, skew
from gateway.request.entry import Entry
from shared.conversation.places import How, Places
from shared.errors import StoreUnavailable
from shared.kafka import Producer
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS, TopicNames

# So long after an answer its conversation stays: its worker is still writing the turn and its KV to Redis.
_RESTS_MS: Final = 1_000
_CLOCKS_DIFFER_MS: Final = 5_000
_WATCH_S: Final = 1.0
_WHY: Final[Mapping[How, Why]] = {"kept": "kv", "moved": "moved", "pinned": "pinned"}


class _Question(NamedTuple):
    """A question that claims a partition; `deadline` by the clock of the wire."""

    session: SessionKey
    request_id: str
    deadline: Deadline


@dataclass(slots=True, kw_only=True)
class Placing:
    """Owned by the gateway's event loop. Without `places` each key's hash alone decides. The requests that are open
    here hold their conversation whatever Redis knows."""

    places: Places | None
    admissions: LaneAdmissions
    producer: Producer
    topics: TopicNames
    _open: dict[SessionKey, dict[str, Entry]] = field(default_factory=dict, init=False)
    _releasing: Tasks = field(default_factory=lambda: Tasks(task_failed), init=False)

    async def place(self, entry: Entry) -> bool:
        """Choose the partition of an entry's conversation; without one the key's hash decides. Return whether the entry
        is still to be answered. Raises `BrokerUnavailable`."""
        publication, session = entry.publication, entry.request.session
        publication.concurrent = tuple(each.response_id for each in self._still_open(session))
        topic = self.topics.requests(publication.bucket, publication.route.lane)
        if self.places is None or (home := await self._home(topic, session)) is None:
            self._hold(entry)
            return not entry.answer.done
        held = self._held(session)
        chosen = offer(home, {}).to(held)
        if entry.request.generation_known:  # Redis has answered a moment ago
            question = _Question(session, entry.response_id, entry.deadline.later(entry.request.clock_ms))
            waits = self.admissions.of(publication.route.lane).fleet.waits(publication.bucket, now_unix_ms())
            wanted = _only(chosen) if held.pinned else offer(home, waits)
            with suppress(StoreUnavailable):
                chosen, others = await self._claim(self.places, question, wanted)
                publication.concurrent = tuple(dict.fromkeys((*publication.concurrent, *others)))
        metrics.placed.labels(chosen.why).inc()
        publication.at = held.partition if held.pinned else chosen.partition
        self._hold(entry)
        await self._learn_partitions(topic, publication.at or 0)
        if entry.answer.done:  # meanwhile, before it was held
            self.release(entry)
        return not entry.answer.done

    async def follow(self, order: Order, topic: str) -> int | None:
        """Return the partition for a request of another service: by its key, unless an earlier question holds its
        conversation elsewhere; None where the key's hash decides. Raises `BrokerUnavailable`."""
        if self.places is None or (home := await self._home(topic, order.session)) is None:
            return None
        chosen = offer(home, {}).to(self._held(order.session))
        with suppress(StoreUnavailable):
            question = _Question(order.session, order.request.id, order.deadline)
            claimed, _ = await self._claim(self.places, question, _only(chosen), released=False)
            chosen = chosen if chosen.why == "pinned" else claimed
        await self._learn_partitions(topic, chosen.partition)
        return chosen.partition % self.producer.known_partitions(topic)

    def adopt(self, entry: Entry) -> None:
        """Note a request that another gateway has placed."""
        self._hold(entry)

    def release(self, entry: Entry) -> None:
        """Release the conversation of a request whose answer has ended. Does not wait."""
        held = self._open.get(entry.request.session, {})
        if held.pop(entry.response_id, None) is None:
            return
        if not held:
            del self._open[entry.request.session]
        if self.places is not None:
            self._releasing.start(self._release(self.places, entry.request.session, entry.response_id))

    async def watch(self) -> None:
        """Measure until cancelled how unevenly the workers of the champion's lane are loaded."""
        fleet = self.admissions.of(CHAMPION).fleet
        while True:
            await asyncio.sleep(_WATCH_S)
            now = now_unix_ms()
            metrics.partition_skew.set(max(skew(fleet.waits(bucket, now)) for bucket in BUCKETS))

    async def close(self) -> None:
        """Release what is being released."""
        await self._releasing.drain(_WATCH_S)

    async def _home(self, topic: str, session: SessionKey) -> int | None:
        """Return the partition of a conversation by its key's hash; None where there is no such topic. Raises
        `BrokerUnavailable`."""
        await self._learn_partitions(topic, 0)
        return self.producer.partition_of(topic, session.record_key)

    async def _claim(
        self, places: Places, question: _Question, wanted: Offer, *, released: bool = True
    ) -> tuple[Chosen, tuple[str, ...]]:
        """Claim a partition for a question; return the one that it gets, and the conversation's other open questions.
        Raises `StoreUnavailable`."""
        at, how, others = await places.claim(
            question.session,
            question.request_id,
            wanted.partition,
            staying=wanted.staying,
            now_unix_ms=wire_unix_ms(),
            until_unix_ms=question.deadline.deadline_unix_ms + _CLOCKS_DIFFER_MS,
            released=released,
        )
        return Chosen(at, _WHY.get(how, wanted.why)), others

    async def _learn_partitions(self, topic: str, partition: int) -> None:
        """Ask Kafka how many partitions a topic has, where it has not been asked yet, or another gateway knows of
        more."""
        if partition >= self.producer.known_partitions(topic):
            await self.producer.num_partitions(topic)

    def _held(self, session: SessionKey) -> Known:
        """Return where a request of the conversation is that is open here."""
        for entry in self._still_open(session):
            at = entry.publication.at if entry.adoption is None else entry.publication.sent_to
            if at is not None:
                return Known(at, pinned=True)
        return Known()

    def _still_open(self, session: SessionKey) -> list[Entry]:
        return [entry for entry in self._open.get(session, {}).values() if not entry.answer.done]

    def _hold(self, entry: Entry) -> None:
        self._open.setdefault(entry.request.session, {})[entry.response_id] = entry

    async def _release(self, places: Places, session: SessionKey, request_id: str) -> None:
        try:
            await places.release(session, request_id, wire_unix_ms() + _RESTS_MS)
        except StoreUnavailable:
            return  # it is released by its deadline


def _only(chosen: Chosen) -> Offer:
    """Offer this partition, wherever the last question went."""
    return Offer(chosen.partition, chosen.why, frozenset())
