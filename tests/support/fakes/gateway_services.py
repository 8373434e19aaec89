"""The services of a gateway: Kafka's producer and logs, Redis, quotas, human agents."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.access.charges import Caller, Kind
from gateway.people.handoffs import Opening
from gateway.request.cursor import Place
from shared.conversation.handoffs import Handoff
from shared.conversation.history import TurnsMissing
from shared.conversation.journal import Journalled
from shared.conversation.turn import Turn
from shared.errors import ProtocolError, StoreUnavailable
from shared.kafka import Outgoing
from shared.kafka.producer import partition_of
from shared.wire.lenient import UNREADABLE
from shared.wire.messages import (
    HandoffReason,
    Language,
    Reply,
)
from shared.wire.session_key import SessionKey


@dataclass
class FakeProducer:
    published: list[Outgoing] = field(default_factory=list)
    partitions: int = 0

    def partition_of(self, topic: str, key: bytes) -> int | None:
        return partition_of(key, self.partitions) if self.partitions else None

    def known_partitions(self, topic: str) -> int:
        return self.partitions

    async def num_partitions(self, topic: str) -> int:
        await asyncio.sleep(0)
        return self.partitions

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        await asyncio.sleep(0)
        return await self.delivered(record.topic, await self.enqueue(record))

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        self.published.append(record)
        delivery = asyncio.get_running_loop().create_future()
        delivery.set_result((record.partition or 0, len(self.published)))
        return delivery

    async def delivered(self, topic: str, delivery: "asyncio.Future[Any]") -> tuple[int, int]:
        await asyncio.sleep(0)
        return await delivery

    def of(self, topic: str) -> list[Outgoing]:
        return [record for record in self.published if record.topic == topic]


@dataclass
class FakeHistory:
    """Redis: the generations of conversations, and what gateways had it remember."""

    generations: dict[SessionKey, int] = field(default_factory=dict)
    remembered: list[Turn] = field(default_factory=list)
    taken: dict[tuple[SessionKey, str], int] = field(default_factory=dict)
    away: bool = False

    async def generation(self, session: SessionKey) -> int:
        await asyncio.sleep(0)
        self._check_there()
        return self.generations.get(session, 0)

    def _check_there(self) -> None:
        if self.away:
            raise StoreUnavailable("away")

    async def delete(self, session: SessionKey, *, generation: int) -> int:
        await asyncio.sleep(0)
        self._check_there()
        self.generations[session] = max(self.generations.get(session, 0) + 1, generation)
        return self.generations[session]

    async def was_taken(self, session: SessionKey, entry: Journalled) -> bool:
        return self.taken.get((session, entry.epoch), 0) >= entry.sequence > 0

    async def note_taken(self, session: SessionKey, entry: Journalled) -> None:
        self.taken[session, entry.epoch] = entry.sequence

    async def take(self, session: SessionKey, turn: Turn, entry: Journalled) -> bool:
        await asyncio.sleep(0)
        self._check_there()
        if self.taken.get((session, entry.epoch), 0) >= entry.sequence:
            return False
        self.taken[session, entry.epoch] = entry.sequence
        self.remembered.append(turn)
        return True

    def remember(self, session: SessionKey, turn: Turn, *, journal: bool = True) -> None:
        self.remembered.append(turn)

    async def turns(self, session: SessionKey, **_: object) -> list[Turn]:
        await asyncio.sleep(0)
        if self.away:
            raise TurnsMissing([], answered=False)
        return list(self.remembered)


@dataclass
class FakeQuotas:
    """The units charged, at this and at all gateways; a quota that is `used_up` refuses further units."""

    used_up: set[Kind] = field(default_factory=set)
    here: list[tuple[Kind, Caller]] = field(default_factory=list)
    num_chars: list[int] = field(default_factory=list)
    shared: list[tuple[Kind, Caller]] = field(default_factory=list)
    handoffs: list[tuple[str, HandoffReason]] = field(default_factory=list)
    opened: list[Caller] = field(default_factory=list)
    handoffs_left: int = 1_000
    refused: list[tuple[str, int]] = field(default_factory=list)
    refusals_left: int = 1_000

    @contextmanager
    def charging_decoding(self, address: str, size: int) -> Iterator[None]:
        if len(self.refused) >= self.refusals_left:
            raise too_often()
        try:
            yield
        except (ProtocolError, *UNREADABLE):
            self.refused.append((address, size))
            raise

    def charge_here(self, kind: Kind, caller: Caller, num_chars: int = 0) -> None:
        if kind in self.used_up:
            raise too_often()
        self.here.append((kind, caller))
        self.num_chars.append(num_chars)

    async def charge_shared(self, kind: Kind, caller: Caller) -> None:
        await asyncio.sleep(0)
        self.shared.append((kind, caller))

    async def charge(self, kind: Kind, caller: Caller) -> None:
        self.charge_here(kind, caller)
        await self.charge_shared(kind, caller)

    async def charge_handoff(self, reason: HandoffReason, caller: Caller) -> None:
        await asyncio.sleep(0)
        if len(self.handoffs) >= self.handoffs_left:
            raise too_often()
        self.handoffs.append((caller.session.tenant, reason))
        self.opened.append(caller)


def too_often() -> ProtocolError:
    return ProtocolError("rate_limited", "too often", kind="rate_limit_error", retriable=True, retry_after_ms=9)


@dataclass
class FakeHandoffs:
    """No person, unless `opens`."""

    opens: bool = False
    stands: dict[SessionKey, Handoff] = field(default_factory=dict)

    async def open(self, caller: Caller, reason: HandoffReason, language: Language, *_: object) -> Opening:
        await asyncio.sleep(0)
        if not self.opens:
            return Opening(None)
        session = caller.session
        was_open = session in self.stands
        made = Handoff(
            id=f"handoff_{len(self.stands)}",
            tenant=session.tenant,
            session_id=session.session_id,
            reason=reason,
            language=language,
            created_unix_ms=0,
            transcript="",
        )
        return Opening(self.stands.setdefault(session, made), was_open=was_open)

    async def find(self, session: SessionKey) -> Handoff | None:
        await asyncio.sleep(0)
        return self.stands.get(session)

    async def generation(self, session: SessionKey) -> int:
        await asyncio.sleep(0)
        return 0

    async def close(self, session: SessionKey, *, before_unix_ms: int) -> None:
        self.stands.pop(session, None)

    def forget(self, session: SessionKey) -> None:
        """No worker was asked, so there is nothing to forget."""


@dataclass
class FakeBadAnswers:
    """The conversations with bad answers in Redis, if it is not `away`."""

    kept: set[SessionKey] = field(default_factory=set)
    away: bool = False

    async def withdraw(self, session: SessionKey, forget: Callable[[], Awaitable[None]], *, asked: bool) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("away")
        if asked or session in self.kept:
            await forget()
        self.kept.discard(session)


class FakeFollower:
    """Another gateway's log, which contains `stands`."""

    def __init__(self) -> None:
        self.stands: list[Reply] = []

    async def join(
        self, place: Place, session_id: str, response_id: str, receive: Callable[[list[Reply]], None]
    ) -> None:
        await asyncio.sleep(0)
        receive(self.stands)

    def leave(self, partition: int, response_id: str) -> None: ...


class FakeQuestions:
    """Topics that contain `stands` for each question; a look-up waits until `come` is set."""

    def __init__(self) -> None:
        self.stands = ""
        self.come = asyncio.Event()
        self.come.set()

    def read(self, *_: object) -> "asyncio.Future[str]":
        return asyncio.ensure_future(self._look())

    async def _look(self) -> str:
        await self.come.wait()
        return self.stands
