"""`/health`, `/ready`, `/ready/strict`, `/metrics` and `/drain`, on a port for operators.

Healthy: the process runs. Ready: it accepts traffic. Degraded: it accepts traffic but lacks something optional;
`/ready` says so in its body, and to Envoy in a header. `/ready/strict` succeeds only if nothing is missing.

`/drain` makes a gateway or worker accept nothing new and finish what it has begun, without exiting; `/ready` says
`drained` when nothing is left. It changes state but is requested with GET, because Kubernetes' `preStop.httpGet` and
this server support no other method. Requests from a browser, or with a public host name (DNS rebinding), get 403.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from time import perf_counter, thread_time
from typing import Final

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from shared.sockets.bounded import BoundedConnection, Bounds, bounded
from shared.sockets.listening import ListenAddress
from shared.sockets.open_sockets import REFUSALS, OpenSockets
from shared.telemetry import metrics

# Envoy's health check sends traffic here only if no other host is fully healthy.
_DEGRADED: Final = {"x-envoy-degraded": "true"}
# One address, such as a node's, may use a quarter of the connections.
_CONNECTIONS: Final = 256
_ADDRESS_PART: Final = 4
_HEAD_S: Final = 5.0
_UNREAD_S: Final = 10.0
# The part of the time that a flood of requests for metrics may take, and the CPU time that is free of it.
_PAGES_PART: Final = 4
_PAGES_BURST_S: Final = 1.0
# Every browser sends one of these headers, and no probe does.
_OF_BROWSERS: Final = ("Origin", "Referer", "Cookie", "Accept-Language", "Sec-Fetch-Site", "Sec-Fetch-Mode")
_CHANGES: Final = frozenset({"/drain"})
_INNER_NAMES: Final = (".svc", ".local", ".internal", ".localdomain", ".lan")


@dataclass(slots=True)
class Drain:
    """An operator's request that a process accept nothing new.

    Attributes:
        asked: set by `/drain`.
        done: set by the process when nothing is left.
    """

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    done: bool = False

    @property
    def status(self) -> str:
        return "drained" if self.done else "draining"


@dataclass(slots=True)
class Readiness:
    """Named checks for `/ready`.

    Attributes:
        checks: each returns None if fine, else what is missing.
        optional: checks without which the process still serves.
        drain: None if the process cannot be drained.
    """

    checks: dict[str, Callable[[], str | None]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    drain: Drain | None = None

    def missing(self) -> dict[str, str]:
        return {name: problem for name, check in self.checks.items() if (problem := check()) is not None}

    @property
    def takes_traffic(self) -> bool:
        return not self.missing().keys() - self.optional

    def page(self, *, strict: bool) -> Response:
        missing = self.missing()
        if self.drain is not None and self.drain.asked.is_set():
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": self.drain.status, "missing": missing})
        if missing.keys() - (frozenset() if strict else self.optional):
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "missing": missing})
        if missing:
            return _json(HTTPStatus.OK, {"status": "degraded", "missing": missing}, _DEGRADED)
        return _json(HTTPStatus.OK, {"status": "ready"})


def http_response(status: HTTPStatus, content_type: str, body: bytes, extra: dict[str, str] | None = None) -> Response:
    headers = Headers({"Content-Type": content_type, "Content-Length": str(len(body)), "Connection": "close"})
    headers.update(extra or {})
    return Response(status.value, status.phrase, headers, body)


def status_page(path: str, readiness: Readiness) -> Response | None:
    """Return the response for one of the paths; None for another path."""
    match path:
        case "/health":
            return _json(HTTPStatus.OK, {"status": "ok"})
        case "/ready":
            return readiness.page(strict=False)
        case "/ready/strict":
            return readiness.page(strict=True)
        case "/metrics":
            return _exposition(readiness)
        case "/drain" if readiness.drain is not None:
            readiness.drain.asked.set()
            return _json(HTTPStatus.OK, {"status": readiness.drain.status})
    return None


def may_change(headers: Headers) -> bool:
    """Return whether a request may change the process: from a program, and to an IP address or internal host name."""
    agents = headers.get_all("User-Agent")
    if any(name in headers for name in _OF_BROWSERS) or any(agent.startswith("Mozilla/") for agent in agents):
        return False
    return all(_is_inner(host) for host in headers.get_all("Host"))


def _is_inner(host: str) -> bool:
    name = host.partition("]")[0].strip("[").lower() if host.startswith("[") else host.partition(":")[0].lower()
    try:
        ip_address(name)
    except ValueError:
        return "." not in name or name.rstrip(".").endswith(_INNER_NAMES)
    return True


@dataclass(slots=True)
class Paced:
    """A page that is made for each request, but takes at most a quarter of the time: more requests than that get the
    last page again.

    Attributes:
        cpu_s: the CPU time of this thread, so that another process's load makes a page no dearer.
        now_s: the time.
    """

    cpu_s: Callable[[], float] = thread_time
    now_s: Callable[[], float] = perf_counter
    _page: Response | None = None
    _owed_s: float = 0.0
    _seen_s: float = 0.0

    def get(self, make: Callable[[], Response | None]) -> Response | None:
        now_s, began_s = self.now_s(), self.cpu_s()
        self._owed_s = max(0.0, self._owed_s - (now_s - self._seen_s) / _PAGES_PART)
        self._seen_s = now_s
        if self._page is None or self._owed_s < _PAGES_BURST_S:
            self._page = make()
            self._owed_s += self.cpu_s() - began_s
        return self._page


def _exposition(readiness: Readiness) -> Response:
    missing = readiness.missing()
    metrics.ready.clear()
    for name in readiness.checks:
        metrics.ready.labels(name).set(name not in missing)
    content_type, body = metrics.exposition()
    return http_response(HTTPStatus.OK, content_type, body)


async def serve_status(address: ListenAddress, readiness: Readiness) -> Server:
    """Return an HTTP server with only these pages.

    Raises:
        ListenError: the address cannot be bound.
    """
    sockets = OpenSockets(most=_CONNECTIONS, address_part=_ADDRESS_PART, spare=REFUSALS)
    bounds = Bounds(sockets=sockets, head_s=_HEAD_S, unread_s=_UNREAD_S)
    exposition = Paced()

    def process_request(socket: ServerConnection, request: Request) -> Response:
        if isinstance(socket, BoundedConnection) and (error := socket.line.refusal) is not None:
            return http_response(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode())
        path = request.path.partition("?")[0]
        if path in _CHANGES and not may_change(request.headers):
            hint = b"no browser may change this process; run: curl http://ADDRESS:PORT/drain\n"
            return http_response(HTTPStatus.FORBIDDEN, "text/plain", hint)
        hint = b"try /health, /ready, /ready/strict, /metrics or /drain\n"
        make = partial(status_page, path, readiness)
        page = exposition.get(make) if path == "/metrics" else make()
        return page or http_response(HTTPStatus.NOT_FOUND, "text/plain", hint)

    async def never(_: ServerConnection) -> None:
        """Never called, since every request is answered in `process_request`."""

    with address.explained():
        return await serve(
            never,
            **address.for_asyncio(),
            process_request=process_request,
            create_connection=bounded(BoundedConnection, bounds),
            open_timeout=_HEAD_S,
        )


def _json(status: HTTPStatus, value: object, extra: dict[str, str] | None = None) -> Response:
    return http_response(status, "application/json", msgspec.json.encode(value), extra)
