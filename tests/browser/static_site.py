"""Static files over HTTP: the widget's own, and other shops' pages."""

import mimetypes
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

WIDGET = Path(__file__).parents[2] / "gateway" / "widget"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def serve_widget(connection: ServerConnection, request: Request) -> Response | None:
    """The page at `/`, its files under `/widget/`; `/ws` continues with the WebSocket handshake."""
    if request.path == "/ws":
        return None
    name = "index.html" if request.path == "/" else request.path.partition("?")[0].removeprefix("/widget/")
    if name not in {path.name for path in WIDGET.iterdir()}:
        return connection.respond(404, "not found\n")
    content_type = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
    headers = Headers({"Content-Type": f"{content_type}; charset=utf-8", "X-Content-Type-Options": "nosniff"})
    headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    if request.path.startswith("/widget/"):
        headers["Access-Control-Allow-Origin"] = "*"  # module scripts are always fetched with CORS
        headers["Cross-Origin-Resource-Policy"] = "cross-origin"  # for embedders with COEP
    return html_response((WIDGET / name).read_bytes(), headers)


def html_response(body: bytes, headers: Headers) -> Response:
    headers["Content-Length"] = str(len(body))
    headers["Connection"] = "close"
    return Response(200, "OK", headers, body)


@asynccontextmanager
async def foreign_site(
    html: str, policy: str | None = None, moved: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """Serve another shop's page, on a separate origin, with a Content-Security-Policy if one is given. Redirect the
    paths in `moved`."""

    def respond(connection: ServerConnection, request: Request) -> Response:
        if to := (moved or {}).get(request.path.partition("?")[0]):
            return Response(302, "Found", Headers({"Location": to, "Connection": "close"}), b"")
        if request.path != "/":
            return connection.respond(404, "not found\n")
        headers = Headers({"Content-Type": "text/html; charset=utf-8"})
        if policy is not None:
            headers["Content-Security-Policy"] = policy
        return html_response(html.encode(), headers)

    async def refuse(connection: ServerConnection) -> None:
        await connection.close()

    async with serve(refuse, "127.0.0.1", 0, process_request=respond) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
