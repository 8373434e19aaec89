"""Carry out errands: wait for an answer, look whether the bot is still to give it, post it, hand over."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.chatwoot.api import ChatwootApi
from gateway.chatwoot.errand import Errand, decode_errand
from gateway.exchange.asker import Asker
from gateway.exchange.exchange import Exchange
from gateway.exchange.exchanges import KEEP_ALIVE_S, Exchanges
from gateway.outbound.calls import CallError
from gateway.session.keyed_locks import KeyedLocks
from shared.errors import ProtocolError, StoreUnavailable
from shared.kafka import Record
from shared.process.clock import wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.outcome import ErrorDetail, Response

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_GIVE_UP_MS: Final = 600_000
# After such an answer a person may be asked: Kafka takes a moment.
_MAY_HAND_OVER: Final = frozenset({"busy", "faq", "unsure"})
_HANDOFF_S: Final = 1.0
_MOST_POSTED: Final = 10_000

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is to be said to the customer; without `text` nobody could answer, for the reason `problem`."""

    text: str = ""
    problem: str = ""
    response_id: str = ""
    source: str = ""


@dataclass(slots=True, kw_only=True)
class ChatwootPoster:
    """One conversation's errands are carried out one after the other. An errand is given up after ten minutes."""

    exchanges: Exchanges
    api: ChatwootApi
    _locks: KeyedLocks = field(default_factory=KeyedLocks)
    _posted: OrderedDict[str, None] = field(default_factory=OrderedDict)  # the last answers' ids

    async def post(self, record: Record, *, again: bool) -> None:
        """Return when the record's errand is carried out, or given up."""
        try:
            errand = decode_errand(record.value)
        except ProtocolError:
            metrics.records_ignored.labels("post").inc()
            return
        async with self._locks.hold(errand.path):
            outcome = await self._carry_out(errand, again=again)
        metrics.chatwoot.labels(outcome).inc()
        log.info("chatwoot_post", session=errand.session_id, outcome=outcome)

    async def _carry_out(self, errand: Errand, *, again: bool) -> str:
        with suppress(CallError):
            await self.api.typing(errand, on=True)
        try:
            answer = await self._answer(errand)
            return await self._persist(errand, answer, again=again)
        finally:
            with suppress(CallError):
                await self.api.typing(errand, on=False)

    async def _persist(self, errand: Errand, answer: _Answer, *, again: bool) -> str:
        """Tell the answer as often as it takes, and return what came of it."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._tell(errand, answer, again=again)
            except CallError as error:
                last = not error.passing or wire_unix_ms() > errand.created_unix_ms + _GIVE_UP_MS
                event = "chatwoot_given_up" if last else "chatwoot_away"
                log.warning(event, session=errand.session_id, cause=str(error), action="docs/channels.md")
                if last:
                    return "given_up"
            again = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    # --- the answer

    async def _answer(self, errand: Errand) -> _Answer:
        """Return the answer, whichever gateway it was begun at."""
        while errand.cursor is not None:
            try:
                return await self._resumed(errand, errand.cursor)
            except ProtocolError as error:
                if not error.retriable or wire_unix_ms() > errand.created_unix_ms + _GIVE_UP_MS:
                    return _Answer(problem=error.code)
            await asyncio.sleep(_FIRST_PAUSE_S)
        return _Answer(problem=errand.problem or "internal")

    async def _resumed(self, errand: Errand, cursor: str) -> _Answer:
        """Return the answer of that cursor. Raises `ProtocolError` where it cannot be had, or not now."""
        exchange = await self.exchanges.resume(Asker(), errand.session_id, cursor)
        try:
            return await self._told(exchange)
        finally:
            self.exchanges.leave(exchange, keep=True)

    async def _told(self, exchange: Exchange) -> _Answer:
        items = await exchange.news(KEEP_ALIVE_S)
        while not exchange.done:
            items += await exchange.news(KEEP_ALIVE_S)
        items += await exchange.news(0)
        for item in items:
            if isinstance(item, ErrorDetail):
                raise ProtocolError(item.code, item.message, retriable=item.retryable or item.code == "retried")
            if isinstance(item, Response):
                problem = "" if item.output_text else item.error.code if item.error is not None else item.status
                return _Answer(item.output_text, problem, item.id, item.source)
        raise ProtocolError("unavailable", "it was not told", retriable=True)

    # --- what is done with it

    async def _tell(self, errand: Errand, answer: _Answer, *, again: bool) -> str:
        """Post the answer unless a person has taken over meanwhile; `again`: unless it stands there. Raises
        `CallError`."""
        conversation = await self.api.conversation(errand)
        if conversation.status != "pending":
            return "taken_over"
        private = not answer.text
        text = answer.text or f"Replyline could not answer ({answer.problem}). The conversation is handed to people."
        if answer.response_id not in self._posted and not (again and conversation.last == text):
            await self.api.say(errand, text, private=private)
        if answer.text:
            self._posted[answer.response_id] = None
            if len(self._posted) > _MOST_POSTED:
                self._posted.popitem(last=False)
        if private or await self._wants_person(errand, answer):
            await self.api.open(errand)
            await self._resolve(errand)
            return "handed_over"
        return "answered"

    async def _wants_person(self, errand: Errand, answer: _Answer) -> bool:
        people = self.exchanges.gateway.people
        if await people.handoffs.find(errand.session) is not None:
            return True
        if not (people.settings.enabled and answer.source in _MAY_HAND_OVER):
            return False
        await asyncio.sleep(_HANDOFF_S)
        return await people.handoffs.find(errand.session) is not None

    async def _resolve(self, errand: Errand) -> None:
        """Note that people have the conversation: given back to the bot, it may be handed over again."""
        handoffs = self.exchanges.gateway.people.handoffs
        with suppress(StoreUnavailable):
            if (handoff := await handoffs.find(errand.session)) is not None:
                await handoffs.store.remove(handoff)
