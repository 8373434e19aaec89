"""Serve the page and the widget's files from memory: they are few and small."""

import hashlib
from http import HTTPStatus
from importlib.resources import files

from websockets.http11 import Request, Response

from gateway.frontends.paths import plain_path
from shared.telemetry.status import http_response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class StaticFiles:
    """`/` is the demo page. `/widget/<file>` may be embedded by any site (scripts load across origins)."""

    def __init__(self) -> None:
        self._pages: dict[str, Response] = {}
        for file in files("gateway").joinpath("widget").iterdir():
            content_type = _TYPES.get(file.name[file.name.rfind(".") :])
            if content_type is not None:
                shared = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
                self._pages[f"/widget/{file.name}"] = _page(content_type, file.read_bytes(), shared)
        index = self._pages.get("/widget/index.html")
        if index is not None:
            self._pages["/"] = _page(_TYPES[".html"], bytes(index.body), {})

    def get(self, request: Request) -> Response | None:
        """Return the file at the request's path, or 304 if the browser has it (RFC 9110, section 13.1.2); None if there
        is no such file."""
        page = self._pages.get(plain_path(request.path.partition("?")[0]))
        if page is None or page.headers["ETag"] not in ", ".join(request.headers.get_all("If-None-Match")):
            return page
        headers = page.headers.copy()
        del headers["Content-Length"]  # clients would read a 304's as the file's
        return Response(HTTPStatus.NOT_MODIFIED, HTTPStatus.NOT_MODIFIED.phrase, headers)


def _page(content_type: str, body: bytes, extra: dict[str, str]) -> Response:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return http_response(HTTPStatus.OK, content_type, body, {**PAGE_HEADERS, **extra, "ETag": etag})
