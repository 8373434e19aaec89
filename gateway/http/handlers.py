"""Build an ASGI application from the paths of an HTTP interface and their handlers. An exception that a handler raises
becomes an error response."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response as HttpResponse
from starlette.routing import Route, WebSocketRoute

from gateway.exchange.refusals import RefusalError
from gateway.http.streams import EventStream
from shared.errors import ProtocolError
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.wire.failed_ends import OWN_FAULT, detail_of
from shared.wire.outcome import ErrorDetail

_CLIENT_GONE: Final = 499  # nginx's status, for a proxy's metrics; the client reads none
_SHOWN_CHARS: Final = 100
Answer = HttpResponse | EventStream
Handler = Callable[[Request], Awaitable[Answer]]
HandledPath = tuple[str, str, Handler]  # method, path and handler
Refusal = Callable[[ErrorDetail], HttpResponse]


def app_of(
    paths: Iterable[HandledPath], door: str, refusal: Refusal, sockets: Iterable[WebSocketRoute] = ()
) -> Starlette:
    """Return the application of a door, which formats its own errors."""

    async def http_error(request: Request, error: Exception) -> HttpResponse:
        """Answer a request for an unknown path or method."""
        assert isinstance(error, HTTPException)
        is_unknown = error.status_code == 404  # noqa: PLR2004
        return refusal(detail_of(unknown_path(request, "not_found" if is_unknown else "method_not_allowed")))

    handled = [Route(path, _answering(handler, door, refusal), methods=[method]) for method, path, handler in paths]
    return Starlette(
        routes=[*handled, *sockets],
        exception_handlers={HTTPException: http_error},
    )


def unknown_path(request: Request, code: str = "not_found") -> ProtocolError:
    asked = f"{request.method} {request.url.path[:_SHOWN_CHARS]}"
    return ProtocolError(code, f"no {asked} here; GET /openapi.json lists the addresses and their methods")


def _answering(handler: Handler, door: str, refusal: Refusal) -> Handler:
    async def answered(request: Request) -> Answer:
        try:
            return await handler(request)
        except ClientDisconnect:
            return HttpResponse(status_code=_CLIENT_GONE)
        except Exception as error:  # noqa: BLE001 - counted and logged; this client is sent a retriable error
            return refusal(detail_of_raised(error, door))

    return answered


def detail_of_raised(error: Exception, door: str) -> ErrorDetail:
    """Return the client's error for an exception, and count it."""
    if not isinstance(error, ProtocolError):
        caught("connection", error, door=door)
        return OWN_FAULT
    if not isinstance(error, RefusalError):
        metrics.refused.labels(error.code).inc()
    return detail_of(error)
