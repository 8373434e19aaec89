"""Keep the questions of one conversation on one Kafka partition while any of them is still unanswered, so that one
worker answers them in order. The partition is stored in Redis, which all gateways share (docs/decisions/0036)."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from gateway.destination.choose import View
from gateway.destination.destination import Destination, Question
from gateway.destination.partitions import Claimed, Offer, Why, offer
from shared.conversation.places import How, Places
from shared.errors import StoreUnavailable
from shared.kafka import Producer
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry.faults import task_failed
from shared.wire.lanes import Lane
from shared.wire.messages import Bucket
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames

# A conversation keeps its partition for this long after an answer, while its worker writes the turn and its KV to
# Redis.
_RESTS_MS: Final = 1_000
_CLOCKS_DIFFER_MS: Final = 5_000
_DRAIN_S: Final = 1.0
# Limits for how long a worker that hangs keeps a conversation on its partition after a cancel.
_CANCEL_HEARD_S: Final = 2.0
_WRITTEN_FOR_MS: Final = 30_000.0  # a turn is written within this time or lost
_MOST_CONVERSATIONS: Final = 10_000
_WHY: Final[Mapping[How, Why]] = {"kept": "kv", "moved": "moved", "pinned": "pinned"}


class _Held(NamedTuple):
    """The claim of an open question: its partition, None if it pins none, and its conversation's generation."""

    partition: int | None
    generation: int


class _Last(NamedTuple):
    """The last answer of a conversation that becomes a turn."""

    request_id: str
    generation: int
    ended_unix_ms: float


@dataclass(slots=True, kw_only=True)
class Claims:
    """The partitions of the conversations; owned by the gateway's event loop.

    A question keeps its conversation on one partition while it is open. A cancelled question does so until its worker,
    which writes the turn, has ended it too, for two seconds at most. It remains among the open ones, until its deadline
    at most: a worker that did not receive the cancel writes a whole turn later. A question that was erased with its
    conversation keeps nothing of the one that begins after it.

    Attributes:
        places: the claims in Redis; None if the hash of the key alone decides
        is_open: returns whether a question is open at this gateway, which counts even if Redis is unavailable
        has_ended: returns whether a question ended here recently, which Redis may not show yet
        generation: returns the generation that a conversation's last known erasure began
    """

    places: Places | None
    producer: Producer
    topics: TopicNames
    is_open: Callable[[str], bool] = lambda _: True
    has_ended: Callable[[str], bool] = lambda _: False
    generation: Callable[[SessionKey], int] = lambda _: 0
    _last: OrderedDict[SessionKey, _Last] = field(default_factory=OrderedDict, init=False)
    _open: dict[SessionKey, dict[str, _Held]] = field(default_factory=dict, init=False)
    _with_worker: dict[str, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _releasing: Tasks = field(default_factory=lambda: Tasks(task_failed), init=False)

    async def claim(self, question: Question, wanted: Destination, view: View) -> tuple[Destination, View]:
        """Claim a partition for a question. Redis is not asked for a question that no worker gets.

        Returns:
            The wanted destination with the claimed partition, and the view as of the time of the claim.

        Raises:
            BrokerUnavailable: the number of partitions is unknown and Kafka is unavailable
        """
        session, request_id, generation = question.session, question.response_id, question.generation
        held, concurrent = self._held(session, generation), tuple(self._still_open(session, generation))
        after = self._after(session, generation, view.now_unix_ms)
        topic = self.topics.requests(wanted.bucket, wanted.lane)
        if self.places is None or view.closed or (home := await self._home(topic, session)) is None:
            self.keep_partition(session, request_id, None, generation)
            return replace(wanted, claimed=Claimed(concurrent=concurrent, after=after)), view
        fleet = view.admissions.of(wanted.lane).fleet
        waits = fleet.waits(wanted.bucket, view.now_unix_ms, wanted.revision)
        home = fleet.by_version(wanted.bucket, home, view.now_unix_ms, wanted.revision)
        claimed = offer(home, {}).to(held, pinned=True)
        if question.generation_known:  # Redis answered a moment ago
            offered = offer(home, waits) if held is None else _only(held)
            until_unix_ms = question.deadline.later(question.clock_ms).deadline_unix_ms
            with suppress(StoreUnavailable):
                claimed = await self._claim(self.places, session, request_id, until_unix_ms, offered)
            view = replace(view, now_unix_ms=now_unix_ms())
        partition = claimed.partition if held is None else held
        self.keep_partition(session, request_id, partition, generation)
        await self._learn_partitions(topic, partition or 0)
        both = dict.fromkeys((*concurrent, *claimed.concurrent))
        concurrent = tuple(each for each in both if each in self._with_worker or not self.has_ended(each))
        is_new = claimed.is_new and held is None
        return replace(wanted, claimed=Claimed(partition, claimed.why, concurrent, after, is_new=is_new)), view

    async def follow(self, order: Order, topic: str) -> int | None:
        """Return the partition for a request of another service: that of its key's hash, unless an earlier question
        keeps its conversation on another one; None if the producer's hash decides. Raises `BrokerUnavailable`."""
        if self.places is None or (home := await self._home(topic, order.session)) is None:
            return None
        generation = order.request.generation
        held = self._held(order.session, self.generation(order.session) if generation is None else generation)
        partition = home if held is None else held
        with suppress(StoreUnavailable):
            until_unix_ms = order.deadline.deadline_unix_ms
            claimed = await self._claim(
                self.places, order.session, order.request.id, until_unix_ms, _only(partition), released=False
            )
            partition = claimed.partition if held is None and claimed.partition is not None else partition
        await self._learn_partitions(topic, partition)
        return partition % self.producer.known_partitions(topic)

    def keep_partition(self, session: SessionKey, request_id: str, partition: int | None, generation: int) -> None:
        """Keep a conversation on a partition for an open question that was claimed here or by another gateway."""
        self._open.setdefault(session, {})[request_id] = _Held(partition, generation)

    def note_turn(self, session: SessionKey, request_id: str, generation: int) -> None:
        """Name this answer to the worker of the conversation's next question, which waits for its turn."""
        self._last[session] = _Last(request_id, generation, now_unix_ms())
        self._last.move_to_end(session)
        if len(self._last) > _MOST_CONVERSATIONS:
            self._last.popitem(last=False)

    def _after(self, session: SessionKey, generation: int, at_unix_ms: float) -> str | None:
        last = self._last.get(session)
        if last is None or last.generation < generation or at_unix_ms >= last.ended_unix_ms + _WRITTEN_FOR_MS:
            return None
        return last.request_id

    def release(self, session: SessionKey, request_id: str) -> None:
        """Release the conversation of an ended question. Does not wait for Redis."""
        if (timer := self._with_worker.pop(request_id, None)) is not None:
            timer.cancel()
        held = self._open.get(session, {})
        if request_id not in held:
            return
        del held[request_id]
        if not held:
            del self._open[session]
        if self.places is not None:
            self._releasing.start(self._release(self.places, session, request_id))

    def leave_to_worker(self, session: SessionKey, request_id: str, deadline_unix_ms: float) -> None:
        """Release a cancelled question's conversation later: when its worker has ended the question too (`release`), or
        at the question's deadline. The conversation may move after `_CANCEL_HEARD_S`."""
        loop = asyncio.get_running_loop()
        self._with_worker[request_id] = loop.call_later(
            _CANCEL_HEARD_S, self._unpin, session, request_id, deadline_unix_ms
        )

    def _unpin(self, session: SessionKey, request_id: str, deadline_unix_ms: float) -> None:
        """Let the conversation leave the partition of a cancelled question, which remains open."""
        left_s = (deadline_unix_ms + _CLOCKS_DIFFER_MS - now_unix_ms()) / 1_000
        release = asyncio.get_running_loop().call_later(max(0.0, left_s), self.release, session, request_id)
        self._with_worker[request_id] = release
        if request_id in (held := self._open.get(session, {})):
            held[request_id] = held[request_id]._replace(partition=None)
            if self.places is not None:
                self._releasing.start(self._unpin_in_redis(self.places, session, request_id))

    def partition_of(self, session: SessionKey, bucket: Bucket, lane: Lane, claimed: int | None) -> int | None:
        """Return the partition of a bucket's topic in a lane (see `PartitionOf`)."""
        topic = self.topics.requests(bucket, lane)
        if claimed is not None and (num_partitions := self.producer.known_partitions(topic)):
            return claimed % num_partitions
        return self.producer.partition_of(topic, session.record_key)

    async def close(self) -> None:
        """Wait for the releases in progress, and begin no others."""
        for timer in self._with_worker.values():
            timer.cancel()
        await self._releasing.drain(_DRAIN_S)

    async def _home(self, topic: str, session: SessionKey) -> int | None:
        """Return the partition that a conversation's key hashes to; None if the topic is missing. Raises
        `BrokerUnavailable`."""
        await self._learn_partitions(topic, 0)
        return self.producer.partition_of(topic, session.record_key)

    async def _claim(
        self,
        places: Places,
        session: SessionKey,
        request_id: str,
        until_unix_ms: float,
        wanted: Offer,
        *,
        released: bool = True,
    ) -> Claimed:
        """Claim a partition for a question in Redis. Raises `StoreUnavailable`."""
        at, how, others = await places.claim(
            session,
            request_id,
            wanted.partition,
            staying=wanted.staying,
            now_unix_ms=wire_unix_ms(),
            until_unix_ms=until_unix_ms + _CLOCKS_DIFFER_MS,
            released=released,
        )
        return Claimed(at, _WHY.get(how, wanted.why), others, is_new=how == "new")

    async def _learn_partitions(self, topic: str, partition: int) -> None:
        """Read a topic's number of partitions from Kafka, if it is unknown or less than another gateway uses."""
        if partition >= self.producer.known_partitions(topic):
            await self.producer.num_partitions(topic)

    def _held(self, session: SessionKey, generation: int) -> int | None:
        """Return the partition of an open question of the conversation at this gateway."""
        held = self._still_open(session, generation).values()
        return next((each.partition for each in held if each.partition is not None), None)

    def _still_open(self, session: SessionKey, generation: int) -> dict[str, _Held]:
        """Return the claims of the conversation's open questions, without those of an earlier generation."""
        held = self._open.get(session, {})
        return {
            name: each
            for name, each in held.items()
            if each.generation >= generation and (self.is_open(name) or name in self._with_worker)
        }

    async def _release(self, places: Places, session: SessionKey, request_id: str) -> None:
        with suppress(StoreUnavailable):  # Redis then releases it at its deadline
            await places.release(session, request_id, wire_unix_ms() + _RESTS_MS)

    async def _unpin_in_redis(self, places: Places, session: SessionKey, request_id: str) -> None:
        with suppress(StoreUnavailable):  # the conversation then stays until its deadline
            await places.unpin(session, request_id)


def _only(partition: int) -> Offer:
    """Return an offer of this partition only, wherever the last question went."""
    return Offer(partition, "pinned", frozenset())
