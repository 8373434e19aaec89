"""OpenAI's Responses interface with stored responses: create one, read it again, continue its stream, cancel or delete
it, and the conversations that they belong to."""

import math
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from starlette.requests import Request

from gateway.doors.openai.bodies import ResponsesQuestion, responses_question
from gateway.doors.openai.names import ResponseName, read_item_id, read_response_name, unknown_response
from gateway.doors.openai.pages import SESSION_HEADER, answer, check_model, page
from gateway.doors.openai.responses import ResponseFields, ResponsesEncoder
from gateway.exchange.answer_events import AnswerEvents
from gateway.exchange.exchange import Exchange, News
from gateway.exchange.question import session_name
from gateway.exchange.refusals import RefusalError
from gateway.http.handlers import Answer
from gateway.http.requests import HttpRequests
from gateway.http.streams import EventStream
from gateway.request.cursor import ResumePoint
from gateway.request.entry import Entry
from shared.conversation.history import TurnsMissing
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.wire.fields import MAX_TURNS
from shared.wire.messages import ResponseCancel
from shared.wire.outcome import ErrorDetail, Response

_CONVERSATION: Final = re.compile(r"conv_([0-9a-f]{8})[0-9a-f]{16}")
_PATIENT_S: Final = 0.5  # the history may lag behind the answer's end
_FETCH_S: Final = 0.6  # a fetch waits at most this long for the answer


@dataclass(slots=True)
class _Found:
    """A response that was found. `entry` is set if it is open or ended recently at this gateway, `response` if it has
    ended."""

    name: ResponseName
    asked: ResponseFields
    exchange: Exchange
    entry: Entry | None
    response: Response | None


@dataclass(slots=True, kw_only=True)
class StoredResponses:
    http: HttpRequests
    models: tuple[str, ...]

    async def create(self, request: Request) -> Answer:
        header = request.headers.get(SESSION_HEADER)
        question = await self.http.decoded(request, lambda data: self._question(data, header))
        if question.references:
            question = await self._recalled(request, question, header)
        previous = _previous(question)
        return await answer(
            self.http,
            request,
            question,
            previous.session if previous is not None else session_name(question.names),
            keep=question.store or "idempotency-key" in request.headers,
            encoder_of=lambda exchange: ResponsesEncoder(asked=_asked(question, exchange), now_unix_s=int(time.time())),
            check=None if previous is None else partial(self._check_last, previous),
            at_once=question.background,
        )

    def _question(self, data: bytes, header: str | None) -> ResponsesQuestion:
        question = responses_question(data, header)
        check_model(question.model, self.models)
        if question.background and not question.store:
            raise ProtocolError("invalid_field", "a background response must be stored", param="store")
        return question

    async def _recalled(self, request: Request, question: ResponsesQuestion, header: str | None) -> ResponsesQuestion:
        """Return a question whose input refers to earlier answers.

        It continues the conversation of the last of them, or else contains their texts. Answers that are no longer
        stored are omitted. Raises `ProtocolError`.
        """
        named = {each: item for each in question.references[-MAX_TURNS:] if (item := read_item_id(each)) is not None}
        newest, said = named.get(question.references[-1]), dict[str, str]()
        for session, last in {item.session: item for item in named.values()}.items():
            async with self.http.exchanges.visit(self.http.asker(request), session) as exchange:
                await self.http.exchanges.charge_lookup(exchange)
                texts = await self._texts(exchange, last.response_id, _PATIENT_S if last is newest else 0.0)
            if last is newest and last.goes_on and [*texts][-1:] == [last.response_id]:
                return replace(question, turns=None, names=(session,))
            said |= {each: texts[item.response_id] for each, item in named.items() if item.response_id in texts}
        with self.http.charging_decoding(request, len(question.body)):
            return responses_question(question.body, header, said)

    async def _texts(self, exchange: Exchange, response_id: str, patient_s: float) -> dict[str, str]:
        """Return the conversation's answers by the ids of their responses; one in progress at this gateway is the last.
        Wait up to `patient_s` until the history has any other, because a turn is stored while its answer is being sent.
        Raises `ProtocolError`."""
        known = self.http.exchanges.gateway.inflight.named(exchange.session.key, response_id, None)
        turns = await self._turns(exchange, response_id, 0.0 if known is not None else patient_s)
        texts = {turn.request_id: turn.output_text for turn in turns}
        if known is not None:
            ended = known.answer.response
            texts.setdefault(response_id, known.answer.text if ended is None else ended.output_text)
        return texts

    async def _check_last(self, previous: ResponseName, exchange: Exchange) -> None:
        """Raise `ProtocolError` unless a response is its conversation's last: the history has no branches."""
        await self._told(exchange, previous, "previous_response_id")
        ids = [*await self._texts(exchange, previous.response_id, _PATIENT_S)]
        if previous.response_id in ids[:-1]:
            why = "its conversation has continued; use its last response"
            raise ProtocolError("not_the_last", why, param="previous_response_id")
        if previous.response_id not in ids:
            raise unknown_response("previous_response_id")

    async def _turns(self, exchange: Exchange, response_id: str, patient_s: float) -> list[Turn]:
        """Return the conversation's turns; wait for that of a response. Raises `ProtocolError` if Redis does not
        answer."""
        try:
            return await self.http.exchanges.history.turns(
                exchange.session.key,
                limit=MAX_TURNS,
                before_unix_ms=math.inf,
                request_id=response_id,
                after=response_id,
                patient_s=patient_s,
            )
        except TurnsMissing as missing:
            if missing.answered:
                return missing.found
            raise ProtocolError("history_unavailable", "try again", kind="server_error", retriable=True) from None

    async def _told(self, exchange: Exchange, name: ResponseName, param: str) -> ResumePoint:
        """Return the resume point in a response's id. Raises `ProtocolError` if the id belongs to another session, or
        the conversation was erased."""
        await self.http.exchanges.charge_lookup(exchange)
        told = exchange.seal.read(name.cursor) if exchange.seal is not None else None
        if not told or told[0].response_id != name.response_id:
            raise unknown_response(param)
        erasing = self.http.exchanges.gateway.erasing
        if told[0].generation < (await erasing.generation_of(exchange.session.key, now_unix_ms())).number:
            raise unknown_response(param)
        return told[0]

    # --- a stored response

    async def fetch(self, request: Request) -> Answer:
        """Return a response as far as it has been written, or its events. The client that followed it last is attached
        to it."""
        after, found = _after(request), await self._find(request)
        streams, asked, now_unix_s = request.query_params.get("stream") == "true", found.asked, int(time.time())
        try:
            if found.response is None and (streams or found.entry is None):
                await self._follow(request, found)
            if streams:
                encoder = ResponsesEncoder(asked=asked, after=after, now_unix_s=now_unix_s)
                first: list[News] = [found.response] if found.response is not None else []
                answer_events = AnswerEvents(
                    exchanges=self.http.exchanges, exchange=found.exchange, encoder=encoder, first=first
                )
                return EventStream(http=self.http, answer_events=answer_events, keep=True)
            if found.response is None and found.entry is None:
                found.response = await self._within(found.exchange)
            text = found.entry.answer.text if found.entry is not None and found.entry.answer.created else ""
            return page(asked.whole(found.response, text=text, now_unix_s=now_unix_s))
        finally:
            if not streams:
                self.http.exchanges.leave(found.exchange, keep=True)

    async def cancel(self, request: Request) -> Answer:
        found = await self._find(request)
        try:
            if found.response is None:
                if found.entry is None:
                    await self._follow(request, found)
                cancel = ResponseCancel(response_id=found.name.response_id)
                await self.http.exchanges.gateway.receive(found.exchange, cancel)
                entry = found.entry
                found.response = entry.answer.response if entry is not None else await self._within(found.exchange)
        finally:
            self.http.exchanges.leave(found.exchange, keep=True)
        return page(found.asked.whole(found.response, now_unix_s=int(time.time())))

    async def _find(self, request: Request) -> _Found:
        """Return a response found at this gateway or in its conversation's history. Raises `ProtocolError`."""
        name = _named(request)
        exchange = await self.http.exchanges.begin(self.http.asker(request), name.session)
        try:
            told = await self._told(exchange, name, "response_id")
            entry = self.http.exchanges.gateway.inflight.named(exchange.session.key, name.response_id, None)
            can_resume = told.log is not None and told.resumable(wire_unix_ms())
            turns: list[Turn] = []
            if entry is None:
                with suppress(*[ProtocolError] if can_resume else []):
                    turns = await self._turns(exchange, name.response_id, 0.0)
            turn = next((turn for turn in turns if turn.request_id == name.response_id), None)
            if entry is None and turn is None and not can_resume:
                raise unknown_response("response_id")
        except ProtocolError:
            self.http.exchanges.leave(exchange, keep=True)
            raise
        response = (
            entry.answer.response
            if entry is not None
            else turn.within(Response, id=turn.request_id)
            if turn is not None
            else None
        )
        asked = ResponseFields(name=str(name), model=self.models[0], created_unix_s=told.received_unix_ms // 1_000)
        return _Found(name, asked, exchange, entry, response)

    async def _follow(self, request: Request, found: _Found) -> None:
        """Resume the answer in a separate session. Raises `ProtocolError`."""
        self.http.exchanges.leave(found.exchange, keep=True)
        found.exchange = await self.http.exchanges.resume(
            self.http.asker(request), found.name.session, found.name.cursor
        )

    async def _within(self, exchange: Exchange) -> Response | None:
        """Return the answer if it ends within `_FETCH_S`; None if it is still in progress. Raises `ProtocolError` if
        there is no answer."""
        until_s = time.monotonic() + _FETCH_S
        items: list[News] = []
        while not exchange.done and (left_s := until_s - time.monotonic()) > 0:
            items += await exchange.news(left_s)
        items += await exchange.news(0)
        for item in items:
            if isinstance(item, ErrorDetail):
                raise RefusalError(item)
        return next((item for item in items if isinstance(item, Response)), None)

    async def delete(self, request: Request) -> Answer:
        """Erase a response together with its conversation."""
        name = _named(request)
        async with self.http.exchanges.visit(self.http.asker(request), name.session) as exchange:
            await self._told(exchange, name, "response_id")
            await self.http.exchanges.erase(exchange)
        return page({"id": str(name), "object": "response", "deleted": True})

    # --- conversations

    async def create_conversation(self, request: Request) -> Answer:
        await self.http.body(request)
        return page(_conversation(f"conv_{int(time.time()):08x}{secrets.token_hex(8)}"))

    async def conversation(self, request: Request) -> Answer:
        return page(_conversation(request.path_params["id"]))

    async def delete_conversation(self, request: Request) -> Answer:
        name = request.path_params["id"]
        _conversation(name)
        async with self.http.exchanges.visit(self.http.asker(request), name) as exchange:
            await self.http.exchanges.erase(exchange)
        return page({"id": name, "object": "conversation.deleted", "deleted": True})


def _previous(question: ResponsesQuestion) -> ResponseName | None:
    """Return the response to continue from. Raises `ProtocolError`."""
    if question.previous_response_id is None:
        return None
    name = read_response_name(question.previous_response_id, "previous_response_id")
    if not name.goes_on:
        raise ProtocolError(
            "history_not_kept", "its client stores this conversation: send it again", param="previous_response_id"
        )
    return name


def _named(request: Request) -> ResponseName:
    return read_response_name(request.path_params["id"], "response_id")


def _after(request: Request) -> int:
    """Return the number of the last event that the client has; -1 for none. Raises `ProtocolError`."""
    told = request.query_params.get("starting_after") or "-1"
    try:
        return int(told)
    except ValueError:
        raise ProtocolError(
            "invalid_field", "starting_after must be an event's number", param="starting_after"
        ) from None


def _asked(question: ResponsesQuestion, exchange: Exchange) -> ResponseFields:
    """Return the fields of a new response. Its id contains the cursor with which any gateway finds it."""
    opened = exchange.opened
    assert opened is not None
    assert exchange.seal is not None
    name = opened.created.response_id
    if question.store:
        cursor = exchange.seal.write([opened.resume_point])
        name = str(ResponseName(name, exchange.session.session_id, cursor, goes_on=not question.turns))
    return ResponseFields(
        name=name,
        model=question.model,
        created_unix_s=opened.resume_point.received_unix_ms // 1_000,
        previous=question.previous_response_id,
        conversation=question.conversation,
        metadata=question.metadata,
        options=question.options
        | {"instructions": None if "instructions" in exchange.ignored else question.system or None},
        store=question.store,
        background=question.background,
    )


def _conversation(name: str) -> dict[str, object]:
    """Return a conversation. Raises `ProtocolError` for a name that no gateway has issued."""
    found = _CONVERSATION.fullmatch(name)
    if found is None:
        told = "no conversation has this id; POST /v1/conversations makes one"
        raise ProtocolError("conversation_not_found", told, param="conversation_id")
    return {"id": name, "object": "conversation", "created_at": int(found[1], 16), "metadata": {}}
