"""Hand conversations over to people: one open hand-off per conversation, stored in Kafka before its client is
informed."""

import asyncio
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.access.charges import Caller
from gateway.access.quotas import Quotas
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.handoffs import Handoff, handoff_headers
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.kafka import Outgoing, Producer, acknowledged
from shared.process.clock import wire_unix_ms
from shared.telemetry.logs import get_logger
from shared.wire.codec import msgpack_encode
from shared.wire.messages import HandoffReason, Language
from shared.wire.session_key import SessionKey

log = get_logger()

_MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Opening:
    """The result of opening a hand-off. `handoff` is None if Kafka did not accept it; `was_open` is True if one was
    open already."""

    handoff: Handoff | None
    was_open: bool = False


@dataclass(slots=True, kw_only=True)
class Handoffs:
    """The open hand-offs. All gateways share them through Redis; without Redis a gateway uses those that it opened
    itself."""

    producer: Producer
    topic: str
    store: HandoffStore
    open_s: float
    source: str
    quotas: Quotas
    _own: OrderedDict[SessionKey, tuple[Handoff, bool]] = field(default_factory=OrderedDict)
    """The hand-offs that this gateway has opened, each with whether Redis has it."""
    _opening: dict[SessionKey, asyncio.Task[Opening]] = field(default_factory=dict)

    async def open(
        self, caller: Caller, reason: HandoffReason, language: Language, response_ids: tuple[str, ...]
    ) -> Opening:
        """Open a hand-off, or return the one that is open or being published.

        If Kafka hangs, the opening continues in the background and the next call finds it. Raises `ProtocolError` if
        the caller or the tenant has requested too many.
        """
        key = caller.session
        task = self._opening.get(key)
        if task is None:
            task = asyncio.create_task(self._open(caller, reason, language, response_ids))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
            return await self._opened(task)
        opening = await self._opened(task)
        return Opening(opening.handoff, was_open=opening.handoff is not None)

    @staticmethod
    async def _opened(task: "asyncio.Task[Opening]") -> Opening:
        try:
            return await acknowledged(task)
        except BrokerUnavailable as error:
            log.warning("handoff_not_published", cause=str(error))
            return Opening(None)

    async def find(self, session: SessionKey) -> Handoff | None:
        """Return the open hand-off. One that Redis no longer has is resolved."""
        own, stored = self._own.get(session, (None, False))
        if own is not None and wire_unix_ms() >= own.created_unix_ms + self.open_s * 1_000:
            own = None
        try:
            return await self.store.find(session) or (None if stored else own)
        except StoreUnavailable:
            return own

    async def close(self, session: SessionKey, *, before_unix_ms: int) -> None:
        """Close the conversation's hand-off of before that time: a person has dealt with it."""
        found = await self.find(session)
        if found is None or found.created_unix_ms > before_unix_ms:
            return
        self._own.pop(session, None)
        with suppress(StoreUnavailable):
            await self.store.remove(found)

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation. The record in Kafka expires with its retention."""
        self._own.pop(session, None)

    async def _open(
        self, caller: Caller, reason: HandoffReason, language: Language, response_ids: tuple[str, ...]
    ) -> Opening:
        session = caller.session
        found = await self.find(session)
        if found is not None:
            return Opening(found, was_open=True)
        generation = await self.generation(session)
        await self.quotas.charge_handoff(reason, caller)
        handoff = Handoff(
            id=f"handoff_{secrets.token_hex(12)}",
            tenant=session.tenant,
            session_id=session.session_id,
            reason=reason,
            language=language,
            created_unix_ms=int(wire_unix_ms()),
            transcript=session.redis_key("turns"),
            response_ids=response_ids,
        )
        try:
            await self.producer.publish(
                Outgoing(
                    self.topic,
                    msgpack_encode(handoff),
                    key=session.record_key,
                    headers=handoff_headers(handoff, source=self.source),
                )
            )
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("handoff_not_published", handoff=handoff.id, reason=reason, cause=str(error))
            return Opening(None)
        log.info("handed_over", handoff=handoff.id, reason=reason, answers=len(response_ids))
        await self._remember(handoff, generation)
        return Opening(handoff)

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation, or the current time if Redis is unavailable."""
        try:
            return await self.store.generation(session)
        except StoreUnavailable:
            return int(wire_unix_ms())

    async def _remember(self, handoff: Handoff, generation: int) -> None:
        try:
            if not await self.store.put(handoff, generation=generation, open_s=self.open_s):
                return  # the conversation was erased in the meantime
            stored = True
        except StoreUnavailable:
            stored = False
        self._own[handoff.session] = (handoff, stored)
        self._own.move_to_end(handoff.session)
        if len(self._own) > _MAX_REMEMBERED:
            self._own.popitem(last=False)
