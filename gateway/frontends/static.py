"""The page and the widget's files, held in memory: they are few and small."""

from http import HTTPStatus
from importlib.resources import files

from websockets.http11 import Response

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
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class StaticFiles:
    """`/` is the demo page; `/widget/<file>` what any site may embed (scripts load across origins)."""

    def __init__(self) -> None:
        self._pages: dict[str, Response] = {}
        for file in files("gateway").joinpath("widget").iterdir():
            content_type = _TYPES.get(file.name[file.name.rfind(".") :])
            if content_type is not None:
                shared = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
                page = http_response(HTTPStatus.OK, content_type, file.read_bytes(), {**_HEADERS, **shared})
                self._pages[f"/widget/{file.name}"] = page
        index = self._pages.get("/widget/index.html")
        if index is not None:
            self._pages["/"] = http_response(HTTPStatus.OK, _TYPES[".html"], bytes(index.body), _HEADERS)

    def get(self, path: str) -> Response | None:
        return self._pages.get(path)
