"""What Kafka and Redis hold of a run: each question as its gateway recorded it, how its answers ended, and the turns
that were kept of it."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.conversation.history import first_counts, open_at
from shared.conversation.turn import Turn, decode_turn
from shared.settings.kafka import KafkaSettings
from shared.wire.codec import decode_reply, decode_request
from shared.wire.lanes import LANES
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.outcome import BY_MODEL
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS

_READ_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.25
_TENANT: Final = "demo"
_MARGIN_MS: Final = 1_000.0
_THERE: Final = frozenset({"available", "gateway_ready", "worker_ready"})

Times = tuple[float, float]
"""From when until when, Unix milliseconds."""


@dataclass(slots=True)
class Recorded:
    """By response: the records that ask for it, and its ends, each in the order of their time. By conversation: the
    turns that Redis was seen to have, in the order of their writing, and when all of them were deleted (`deleted`).
    `away`: when Redis was away from a process."""

    requests: dict[str, list[ChatRequest]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, list[ReplyDone]] = field(default_factory=lambda: defaultdict(list))
    kept: dict[str, list[Turn]] = field(default_factory=lambda: defaultdict(list))
    deleted: dict[str, list[Times]] = field(default_factory=lambda: defaultdict(list))
    away: list[Times] = field(default_factory=list)
    _by_session: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add_request(self, request: ChatRequest) -> None:
        known = self.requests[request.id]
        if not known:
            self._by_session[request.session_id].append(request.id)
        known.append(request)

    def earlier(self, request: ChatRequest) -> list[list[Turn]]:
        """Return the turns in a request's prompt, in the order of the questions. For each question of its conversation
        that was asked before it, unless either names the other as open at the same time: the turn that counts, followed
        by the other turns written for that question."""
        turns: dict[str, list[Turn]] = defaultdict(list)
        for turn in self.kept.get(request.session_id, ()):
            known = turns[turn.request_id]
            known.insert(0 if known and not first_counts(known[0], turn) else len(known), turn)
        for name in self._by_session[request.session_id]:
            texts = {turn.output_text for turn in turns[name]}
            turns[name] += [turn for turn in self._ended(self.requests[name][0]) if turn.output_text not in texts]
        asked = [[turn for turn in each if _asked_before(turn, request)] for each in turns.values()]
        # If the turn that counts had not ended, or was cancelled without text, no other one of its question counts.
        counted = [each for each in asked if each and _had_ended(each[0], request)]
        found = [[turn for turn in each if _had_ended(turn, request)] for each in counted]
        return sorted(found, key=lambda each: (each[0].asked_unix_ms, each[0].request_id))

    def may_lack_turns(self, request: ChatRequest, earlier: list[list[Turn]]) -> bool:
        """Return whether Redis was away from a process, or lost the conversation's turns, between the first of these
        turns and the request's end."""
        from_ms = min([each[0].asked_unix_ms for each in earlier], default=_created(request)) - _MARGIN_MS
        until_ms = (request.deadline_unix_ms or _created(request)) + _MARGIN_MS
        lacking = [*self.away, *self.deleted.get(request.session_id, ())]
        return any(begin <= until_ms and end >= from_ms for begin, end in lacking)

    def _ended(self, request: ChatRequest) -> Iterator[Turn]:
        """Yield the turns that a worker, or a gateway that answered from the FAQ, has written for a question, according
        to the records in Kafka."""
        for done in self.ends[request.id]:
            kept = done.origin == "worker" or done.source not in {*BY_MODEL, "busy"}
            forged = done.session_id != request.session_id
            if kept and not forged and done.output_text and done.status != "failed":
                yield done.within(
                    Turn,
                    request_id=done.request_id,
                    user=request.input,
                    asked_unix_ms=_created(request),
                    generation=request.generation or 0,
                    concurrent=request.concurrent,
                )


def _asked_before(turn: Turn, request: ChatRequest) -> bool:
    is_erased = turn.generation < (request.generation or 0)
    return turn.request_id != request.id and turn.asked_unix_ms < _created(request) and not is_erased


def _had_ended(turn: Turn, request: ChatRequest) -> bool:
    is_open = open_at(turn, _created(request), request.id, request.concurrent)
    return bool(turn.output_text) and not is_open


def _created(request: ChatRequest) -> int:
    return request.created_unix_ms or 0


async def watch_turns(url: str, sessions: Iterable[str], kept: dict[str, list[Turn]], ended: asyncio.Event) -> None:
    """Keep until `ended` each conversation's turns that Redis has, in their order, while they are there. A call to a
    Redis that is away may take a cancellation for a timeout: an event is not lost."""
    keys = {session: SessionKey(_TENANT, session).redis_key("turns") for session in sessions}
    known: set[bytes] = set()
    async with Redis.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0) as redis:
        while not ended.is_set():
            with suppress(RedisError, OSError):
                for session, key in keys.items():
                    values: list[Any] = await redis.lrange(key, 0, -1)
                    new = [value for value in values if value not in known]
                    kept[session] += map(decode_turn, new)
                    known.update(new)
            await asyncio.sleep(_LOOK_S)


def redis_away(log: str) -> list[Times]:
    """Return when Redis was away from a process, by its log's lines of JSON (`times_away`)."""
    lines: list[tuple[float, dict[str, Any]]] = []
    for text in log.splitlines():
        with suppress(ValueError):  # other programs write lines too
            line = json.loads(text)
            lines.append((datetime.fromisoformat(line["timestamp"]).timestamp() * 1_000, line))
    return times_away(lines)


def times_away(lines: Iterable[tuple[float, Mapping[str, Any]]]) -> list[Times]:
    """Return the periods in which Redis was unavailable to a process, from the Unix millisecond and the fields of each
    line of its log: from the line that reports the outage until one that reports the recovery, a restart of the
    process, or the log's end."""
    found: list[Times] = []
    begun: float | None = None
    for at, line in lines:
        goes = line["event"] == "unavailable"
        if line.get("what", "redis") != "redis" or not (goes or line["event"] in _THERE):
            continue
        if begun is None:
            begun = at if goes else None
        elif not goes:
            found.append((begun, at))
            begun = None
    return found if begun is None else [*found, (begun, float("inf"))]


async def read_recorded(settings: KafkaSettings, kept: dict[str, list[Turn]], away: Iterable[Times]) -> Recorded:
    """Read the requests of every lane and the replies, from the topics' beginnings to their ends now."""
    recorded, topics = Recorded(kept=kept, away=[*away]), settings.topics
    asked = {topics.requests(bucket, lane) for bucket in BUCKETS for lane in LANES}
    for record in sorted([*await _records(settings, [*asked, topics.replies])], key=lambda record: record.timestamp):
        if record.topic in asked:
            recorded.add_request(decode_request(record.value))
        elif isinstance(reply := decode_reply(record.value), ReplyDone):
            recorded.ends[reply.request_id].append(reply)
    return recorded


async def _partitions(settings: KafkaSettings, topics: list[str]) -> list[TopicPartition]:
    """Return the partitions of the existing topics of this list: a lane without workers has no topic."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    await admin.start()
    try:
        there = await admin.describe_topics([*{*topics} & {*await admin.list_topics()}])
    finally:
        await admin.close()
    return [TopicPartition(topic["topic"], part["partition"]) for topic in there for part in topic["partitions"]]


async def _records(settings: KafkaSettings, topics: list[str]) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(_READ_LIMIT_S):
            parts = await _partitions(settings, topics)
            consumer.assign(parts)
            ends = await consumer.end_offsets(parts)
            found: list[Any] = []
            while any([await consumer.position(part) < ends[part] for part in parts]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found += batch
            return found
    finally:
        await consumer.stop()
