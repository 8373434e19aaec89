"""The door's answers that are no streams."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from gateway.openai.refusals import error_body, retry_headers, status_of
from gateway.openai.streams import EventStream
from shared.errors import ProtocolError
from shared.wire.outcome import ErrorDetail, Response

SESSION_HEADER: Final = "replyline-session"
_GONE: Final = 499  # nginx's, for a client that did not wait
_encode: Final = msgspec.json.Encoder().encode

Answer = HttpResponse | EventStream
Handler = Callable[[Request], Awaitable[Answer]]


def page(body: object, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    return HttpResponse(_encode(body), status, headers, "application/json")


def refusal(error: ErrorDetail) -> HttpResponse:
    headers = {"x-request-id": f"req_{secrets.token_hex(12)}"} | retry_headers(error)
    return page(error_body(error), status_of(error), headers)


def answered_page(body: object, response: Response) -> HttpResponse:
    return page(body, headers={"x-request-id": response.id, "replyline-source": response.source})


def check_model(model: str, models: tuple[str, ...]) -> None:
    if model not in models:
        raise ProtocolError("model_not_found", "no such model; GET /v1/models lists them", param="model")


def nobody() -> HttpResponse:
    """Return the answer to a client that is gone."""
    return HttpResponse(status_code=_GONE)
