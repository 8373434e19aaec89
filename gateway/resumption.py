"""What it takes to go on with what a client was told, here or elsewhere: seals, the place in the log, other logs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.cursor import CursorKey, Place, Seal, Told
from gateway.entry import Entry
from gateway.inflight import InflightTable
from gateway.log_follower import LogFollower
from gateway.session import Session
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import read_at
from shared.kafka_settings import KafkaSettings
from shared.logs import get_logger
from shared.requests import open_request

log = get_logger()

_QUESTION_S: Final = 0.2


@dataclass(slots=True, kw_only=True)
class Resumption:
    """`next_offset` is that of the gateway's own partition; None while it is not being read."""

    key: CursorKey
    follower: LogFollower
    kafka: KafkaSettings
    partition: int
    next_offset: Callable[[], int | None]
    max_inflight: int

    def seal(self, session: Session) -> Seal:
        return self.key.seal(session.tenant, session.conversation_id)

    def log_place(self) -> Place | None:
        """Replies to a request that is published from now on stand behind it."""
        offset = self.next_offset()
        return None if offset is None else Place(self.partition, offset)

    def resumable(self, seal: Seal, cursor: str, now_unix_ms: float, inflight: InflightTable) -> list[Told] | None:
        """The open answers of a client that comes back; None where not every one of them can be gone on with."""
        told = seal.read(cursor)
        if told is None:
            return None
        unknown = [each for each in told if inflight.get_any(each.response_id) is None]
        if not all(each.log is not None and each.resumable(now_unix_ms) for each in unknown):
            return None
        return told if len(inflight) + len(unknown) <= self.max_inflight else None

    def held(self, seal: Seal, cursor: str, inflight: InflightTable) -> list[Entry]:
        """Those of its open answers that this gateway has."""
        entries = [inflight.get_any(each.response_id) for each in seal.read(cursor) or ()]
        return [entry for entry in entries if entry is not None]

    async def recall(self, entry: Entry) -> None:
        """Follow an adopted answer's log until it is let go; returns when all that stands in it by now was told."""
        if not entry.done and entry.log is not None:
            await self.follower.join(entry.log, entry.session_id, entry.response_id)

    def let_go(self, entry: Entry) -> None:
        if entry.log is not None:
            self.follower.leave(entry.log.partition, entry.response_id)

    async def question(self, entry: Entry) -> str:
        """The input of an adopted request, from its topic; nothing where it cannot be had at once."""
        if entry.request is None:
            return ""
        topic = self.kafka.topics.requests(entry.bucket)
        try:
            async with asyncio.timeout(_QUESTION_S):
                kept = await read_at(self.kafka, topic, entry.request.partition, entry.request.offset)
            if kept is None:
                return ""
            request = open_request(kept.record.value, kept.record.headers, unreadable=kept.record.unreadable)
        except (BrokerUnavailable, ProtocolError, TimeoutError) as error:
            log.warning("question_unread", request_id=entry.response_id, cause=repr(error))
            return ""
        return request.input if request.id == entry.response_id else ""
