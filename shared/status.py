"""`/health`, `/ready` and `/metrics`, the same for every process.

Healthy: the process runs. Ready: every dependency has been there once and Kafka is there now. Redis is a cache: once it
has been seen, its absence is reported and does not make a process unready, or a wiped cache would take every gateway
out of the load balancer at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from shared import metrics


@dataclass(slots=True)
class Readiness:
    """Named checks; each returns None when fine, else what is missing."""

    checks: dict[str, Callable[[], str | None]] = field(default_factory=dict)

    def missing(self) -> dict[str, str]:
        return {name: problem for name, check in self.checks.items() if (problem := check()) is not None}


def http_response(status: HTTPStatus, content_type: str, body: bytes, extra: dict[str, str] | None = None) -> Response:
    headers = Headers({"Content-Type": content_type, "Content-Length": str(len(body)), "Connection": "close"})
    headers.update(extra or {})
    return Response(status.value, status.phrase, headers, body)


def status_page(path: str, readiness: Readiness) -> Response | None:
    """The answer to one of the three paths, None for any other."""
    if path == "/health":
        return _json(HTTPStatus.OK, {"status": "ok"})
    if path == "/ready":
        missing = readiness.missing()
        if missing:
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "missing": missing})
        return _json(HTTPStatus.OK, {"status": "ready"})
    if path == "/metrics":
        missing = readiness.missing()
        metrics.ready.clear()
        for name in readiness.checks:
            metrics.ready.labels(name).set(name not in missing)
        content_type, body = metrics.exposition()
        return http_response(HTTPStatus.OK, content_type, body)
    return None


async def serve_status(host: str, port: int, readiness: Readiness) -> Server:
    """An HTTP server with just these pages, for processes that have no other. Raises `OSError` when it cannot bind."""

    def process_request(_: ServerConnection, request: Request) -> Response:
        page = status_page(request.path.partition("?")[0], readiness)
        return page or http_response(HTTPStatus.NOT_FOUND, "text/plain", b"try /health, /ready or /metrics\n")

    async def never(_: ServerConnection) -> None:
        """Every request was answered in `process_request`."""

    return await serve(never, host, port, process_request=process_request)


def _json(status: HTTPStatus, value: object) -> Response:
    return http_response(status, "application/json", msgspec.json.encode(value))
