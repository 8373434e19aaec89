"""An identity provider's JWKS over HTTP, as it is on good days and on bad ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(slots=True)
class KeyServer:
    """Answers every GET with `body`; `asked` counts them. `pause_s` lies between the body's bytes."""

    body: bytes
    status: int = 200
    location: str | None = None
    pause_s: float = 0.0
    asked: int = 0
    url: str = ""
    _server: ThreadingHTTPServer | None = field(default=None, repr=False)

    @contextmanager
    def serve(self) -> Iterator[Self]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        keys = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys.asked += 1
                self.send_response(keys.status)
                if keys.location is not None:
                    self.send_header("Location", keys.location)
                self.send_header("Content-Length", str(len(keys.body)))
                self.end_headers()
                try:
                    if not keys.pause_s:
                        self.wfile.write(keys.body)
                        return
                    for byte in keys.body:
                        self.wfile.write(bytes([byte]))
                        time.sleep(keys.pause_s)
                except OSError:
                    pass  # the client did not wait for the rest

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
                pass

        address = ("127.0.0.1", int(self.url.split(":")[2].split("/")[0]) if self.url else 0)
        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
