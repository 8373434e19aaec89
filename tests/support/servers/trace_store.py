"""A trace store as a sender sees it: accepts OTLP over HTTP, and can stop and start again on the same port."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class StoredSpan:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    service: str
    instance: str
    schema_url: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    error: str


@dataclass(slots=True)
class TraceStore:
    """`bodies` are the requests as they came; `status` is what the next ones are answered with."""

    port: int = 0
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[StoredSpan]:
        return [span for body in list(self.bodies) for span in _spans(body)]

    def trace(self, trace_id: str) -> dict[str, StoredSpan]:
        return {span.name: span for span in self.spans if span.trace_id == trace_id}

    def start(self) -> None:
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                if store.status == 200:
                    store.bodies.append(body)
                self.send_response(store.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Close the listening socket."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def trace_store() -> Iterator[TraceStore]:
    store = TraceStore()
    store.start()
    try:
        yield store
    finally:
        store.stop()


def _spans(body: bytes) -> Iterator[StoredSpan]:
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield StoredSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    service=resource["service.name"],
                    instance=resource["service.instance.id"],
                    schema_url=of_scope.schema_url,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    attributes=_attributes(span.attributes),
                    links=tuple(link.span_id.hex() for link in span.links),
                    error=span.status.message,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
