"""Post a finished answer into a Chatwoot conversation, through Chatwoot's API with the bot's own token.

An errand is the stored order to do so (a record of `chat.posts`). The gateway that reads one waits for the answer,
checks that no agent has taken over in the meantime, posts the text, and hands the conversation to people if the answer
asks for that. The API's description is in chatwoot/chatwoot:swagger.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.doors.chatwoot.events import Errand, decode_errand
from gateway.exchange.exchange import Exchange, News
from gateway.exchange.exchanges import KEEP_ALIVE_S, Exchanges
from gateway.exchange.question import Asker
from gateway.outbound.calls import CallError, Calls
from shared.conversation.handoffs import Handoff
from shared.errors import ProtocolError, StoreUnavailable
from shared.kafka import Record
from shared.process.clock import wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.codec import json_encode
from shared.wire.outcome import ErrorDetail, Response


class _PostedMessage(Struct):
    content: str | None = None


class Conversation(Struct):
    """The current state of a conversation: its status and its last messages."""

    status: str
    messages: list[_PostedMessage] = []

    @property
    def last(self) -> str | None:
        return self.messages[-1].content if self.messages else None


class ChatwootApi:
    """Chatwoot's API at `url`, the address of the installation. Every method may raise `CallError`."""

    def __init__(self, url: str, calls: Calls) -> None:
        self._url = url
        self._calls = calls

    async def conversation(self, errand: Errand) -> Conversation:
        answer = await self._call("GET", errand.path)
        try:
            return msgspec.json.decode(answer, type=Conversation)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise CallError("its response with the conversation cannot be decoded", passing=False) from None

    async def say(self, errand: Errand, text: str, *, private: bool) -> None:
        """Post a message to the customer, or a private note to the agents."""
        message = {"content": text, "message_type": "outgoing", "private": private}
        await self._call("POST", f"{errand.path}/messages", message)

    async def typing(self, errand: Errand, *, on: bool) -> None:
        await self._call("POST", f"{errand.path}/toggle_typing_status", {"typing_status": "on" if on else "off"})

    async def open(self, errand: Errand) -> None:
        """Hand the conversation to people."""
        await self._call("POST", f"{errand.path}/toggle_status", {"status": "open"})

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        data = b"" if body is None else json_encode(body)
        return await self._calls.call(method, self._url + path, data)


_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_GIVE_UP_MS: Final = 600_000
# After an answer from one of these sources a hand-off may follow. Kafka takes a moment to store it.
_MAY_HAND_OVER: Final = frozenset({"busy", "faq", "quote", "unsure"})
_HANDOFF_S: Final = 1.0
_MOST_POSTED: Final = 10_000

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer for the customer. Without `text` there is no answer, for the reason `problem`."""

    text: str = ""
    problem: str = ""
    response_id: str = ""
    source: str = ""


@dataclass(slots=True, kw_only=True)
class ChatwootPoster:
    """Carries out errands. An errand is given up after ten minutes."""

    exchanges: Exchanges
    api: ChatwootApi
    _posted: OrderedDict[str, None] = field(default_factory=OrderedDict)  # the ids of the latest posted answers

    async def post(self, record: Record, *, again: bool) -> None:
        """Return when the record's errand is carried out or given up."""
        try:
            errand = decode_errand(record.value)
        except ProtocolError:
            metrics.records_ignored.labels("post").inc()
            return
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
        """Post the answer, with retries, and return the outcome."""
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
        """Return the answer, which may have begun at any gateway."""
        while errand.cursor is not None:
            try:
                exchange = await self.exchanges.resume(Asker(), errand.session_id, errand.cursor)
                try:
                    return await self._told(exchange)
                finally:
                    self.exchanges.leave(exchange, keep=True)
            except ProtocolError as error:
                if not error.retriable or wire_unix_ms() > errand.created_unix_ms + _GIVE_UP_MS:
                    return _Answer(problem=error.code)
            await asyncio.sleep(_FIRST_PAUSE_S)
        return _Answer(problem=errand.problem or "internal")

    async def _told(self, exchange: Exchange) -> _Answer:
        """Return the answer once it has ended. Raises `ProtocolError` if it failed or continues elsewhere."""
        items: list[News] = []
        while not exchange.done:
            items += await exchange.news(KEEP_ALIVE_S)
        for item in [*items, *await exchange.news(0)]:
            if isinstance(item, ErrorDetail):
                raise ProtocolError(item.code, item.message, retriable=item.retryable or item.code == "retried")
            if isinstance(item, Response):
                problem = "" if item.output_text else item.error.code if item.error is not None else item.status
                return _Answer(item.output_text, problem, item.id, item.source)
        raise ProtocolError("unavailable", "the answer ended without a result", retriable=True)

    # --- what is done with it

    async def _tell(self, errand: Errand, answer: _Answer, *, again: bool) -> str:
        """Post the answer unless a person has taken over, and return the outcome. With `again`, skip the post if the
        answer is already there. Raises `CallError`."""
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
        handoff = await self._handoff(errand, answer)
        if not (private or handoff is not None):
            return "answered"
        await self.api.open(errand)
        if handoff is not None:  # if the conversation returns to the bot, it may be handed over again
            with suppress(StoreUnavailable):
                await self.exchanges.gateway.people.handoffs.store.remove(handoff)
        return "handed_over"

    async def _handoff(self, errand: Errand, answer: _Answer) -> Handoff | None:
        """Return the conversation's open hand-off, if there is one."""
        people = self.exchanges.gateway.people
        handoff = await people.handoffs.find(errand.session)
        if handoff is None and people.settings.enabled and answer.source in _MAY_HAND_OVER:
            await asyncio.sleep(_HANDOFF_S)
            handoff = await people.handoffs.find(errand.session)
        return handoff
