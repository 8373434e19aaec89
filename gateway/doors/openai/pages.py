"""Functions that all OpenAI interfaces share to write HTTP responses: JSON bodies, event streams and errors in OpenAI's
format."""

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from gateway.doors.openai.bodies import OpenAiQuestion
from gateway.doors.openai.chat import error_body
from gateway.exchange.answer_events import AnswerEvents, EventEncoder
from gateway.exchange.exchange import Exchange
from gateway.http.handlers import Answer
from gateway.http.headers import notices
from gateway.http.requests import HttpRequests
from gateway.http.statuses import error_headers, status_of
from gateway.http.streams import STREAM_HEADERS, EventStream
from shared.errors import ProtocolError
from shared.wire.outcome import ErrorDetail, Response

SESSION_HEADER: Final = "replyline-session"
_GONE: Final = 499  # nginx's status for a client that did not wait
_SHOWN_CHARS: Final = 100
_encode: Final = msgspec.json.Encoder().encode


class WholeAnswerEncoder(EventEncoder, Protocol):
    """An encoder that can also return an answer as a whole."""

    def whole(self, response: Response | None) -> dict[str, Any]: ...


def page(body: object, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    return HttpResponse(_encode(body), status, headers, "application/json")


def refusal(error: ErrorDetail) -> HttpResponse:
    headers = {"x-request-id": f"req_{secrets.token_hex(12)}"} | error_headers(error)
    return page(error_body(error), status_of(error), headers)


async def answer(
    http: HttpRequests,
    request: Request,
    question: OpenAiQuestion,
    session: str | None,
    *,
    keep: bool,
    encoder_of: Callable[[Exchange], WholeAnswerEncoder],
    check: Callable[[Exchange], Awaitable[None]] | None = None,
    at_once: bool = False,
) -> Answer:
    """Ask a question and return the answer: streamed, complete, or in progress.

    Args:
        http: the door's requests
        request: the HTTP request
        question: the question
        session: the session's name; None for a new session
        keep: the client may return to the answer
        encoder_of: returns the encoder of the answer
        check: called before the question is asked; may raise `ProtocolError`
        at_once: return without waiting for the answer

    Raises:
        ProtocolError: the question is refused, or there is no answer
    """
    exchanges, asker = http.exchanges, http.asker(request)
    exchange = await exchanges.begin(asker, session or partial(exchanges.own_session, asker, question))
    streams = False
    try:
        if check is not None:
            await check(exchange)
        items = await http.ask(request, exchange, question)
        if exchange.opened is None:
            return HttpResponse(status_code=_GONE)
        encoder, streams = encoder_of(exchange), question.stream
        headers = notices(exchange.ignored)
        if streams:
            answer_events = AnswerEvents(exchanges=exchanges, exchange=exchange, encoder=encoder, first=items)
            return EventStream(http=http, answer_events=answer_events, keep=keep, headers={**STREAM_HEADERS, **headers})
        response = None if at_once else await http.end(request, exchange, items)
        if response is None:
            return page(encoder.whole(None), headers=headers) if at_once else HttpResponse(status_code=_GONE)
        headers |= {"x-request-id": response.id, "replyline-source": response.source}
        return page(encoder.whole(response), headers=headers)
    finally:
        if not streams:
            exchanges.leave(exchange, keep=keep)


def check_model(model: str, models: tuple[str, ...]) -> None:
    if model not in models:
        told = f"no model '{model[:_SHOWN_CHARS]}' here; GET /v1/models lists the names"
        raise ProtocolError("model_not_found", told, param="model")
