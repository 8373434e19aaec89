"""Serve the page on which a person reviews learned entries, on this machine alone.

Pages of other origins can neither read nor publish: the token is in the part of the address that no browser sends, and
comes back in a header that a form cannot set; the `Host` and the `Origin` are this server's own names.
"""

import secrets
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ops.operate.faq.entries import encode
from ops.operate.faq.reading import others_beside
from ops.operate.faq.review import Decided, Decision, Item, apply, items_of
from ops.operate.faq.state import State, digest
from shared.errors import SettingsError
from shared.faq.entries import FaqEntry, read_entries, refuse_duplicates
from shared.nouns import counted

_FILES: Final = {"/": ("review.html", "text/html"), "/review.js": ("review.js", "text/javascript")} | {
    "/review.css": ("review.css", "text/css")
}
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_MOST_BYTES: Final = 32 << 20
_END_S: Final = 1
_HTTP_PORT: Final = 80


class _Publish(msgspec.Struct, frozen=True):
    version: str
    decisions: list[Decision]


class _Shown(msgspec.Struct, frozen=True):
    version: str
    into: str
    items: list[Item]
    left_out: list[str]


class ReviewPage:
    """The page's server."""

    def __init__(self, draft: Path, into: Path, port: int) -> None:
        """Bind the port (0: any free one). Raises SettingsError if a file cannot be read, or the port is taken."""
        self._draft, self._into = draft, into.resolve()
        if draft.resolve() == self._into:
            raise SettingsError(f"--into {into}: is the file to review; name the file that is served")
        self._load()
        self._token = secrets.token_urlsafe(32)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
        except OSError as error:
            self._socket.close()
            raise SettingsError(f"--port {port}: {error.strerror or error}; name another") from error
        self._socket.listen()
        self.port = self._socket.getsockname()[1]
        ports = (f":{self.port}", "") if self.port == _HTTP_PORT else (f":{self.port}",)  # browsers leave 80 out
        self._hosts = {f"{name}{each}" for name in ("127.0.0.1", "localhost") for each in ports}
        self.app = Starlette(
            routes=[
                *(Route(path, self._file) for path in _FILES),
                Route("/entries", self._entries),
                Route("/publish", self._publish, methods=["POST"]),
            ],
            exception_handlers={SettingsError: _fault, OSError: _fault},
        )

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://127.0.0.1:{self.port}/#{self._token}"

    def serve(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        sys.stdout.write(f"{self.address}\nOpen this page to review {self._draft}. Ctrl-C ends it.\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            self.app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_END_S
        )
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[self._socket])

    async def _file(self, request: Request) -> Response:
        if not self._is_own_host(request):
            return _refusal(421, "this host is not served; open the address that the command printed")
        name, kind = _FILES[request.url.path]
        return FileResponse(Path(__file__).with_name(name), media_type=kind, headers=_HEADERS)

    async def _entries(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        learned, served, before, version = self._load()
        items = items_of(learned, served, before)
        return _json(_Shown(version, str(self._into), items, State.open(self._draft).left_out))

    async def _publish(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        try:
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > _MOST_BYTES:
                    return _refusal(413, f"more than {_MOST_BYTES >> 20} MiB; publish in parts")
            asked = msgspec.json.decode(body, type=_Publish)
            learned, served, before, version = self._load()
            if version != asked.version:
                return _refusal(
                    409,
                    "the entries have changed since the page was loaded; look at what has changed, then publish again",
                )
            entries, verdicts = apply(learned, served, before, asked.decisions)
            self._write(entries, verdicts)
        except ClientDisconnect:
            return Response(status_code=400)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, SettingsError) as error:
            return _refusal(400, str(error))
        return _json({"published": counted(len(entries), "entry", "entries")})

    def _refusal(self, request: Request) -> Response | None:
        """Return why a request is refused; None if this page has sent it."""
        origin = request.headers.get("origin")
        if not self._is_own_host(request) or origin not in (None, f"http://{request.headers['host']}"):
            return _refusal(403, "another page asks; open the address that the command printed")
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return _refusal(401, "the token is missing or old; open the address that the command printed")
        return None

    def _is_own_host(self, request: Request) -> bool:
        """Return whether a browser that was led here by another name, which its owner can rebind, is kept out."""
        return request.headers.get("host") in self._hosts

    def _load(self) -> tuple[list[FaqEntry], list[FaqEntry], dict[str, Decided], str]:
        """Return the learned entries, the served ones, the earlier verdicts, and the version of all three."""
        learned = read_entries(self._draft)
        served = read_entries(self._into) if self._into.exists() else []
        verdicts = self._verdicts.read_bytes() if self._verdicts.exists() else b"{}"
        try:
            before = msgspec.json.decode(verdicts, type=dict[str, Decided])
        except msgspec.DecodeError as error:
            raise SettingsError(f"{self._verdicts}: is damaged; delete it, and review all entries again") from error
        version = digest(b"\0".join([repr((learned, served)).encode("utf-8", "replace"), verdicts]))
        return learned, served, before, version

    def _write(self, entries: list[FaqEntry], verdicts: dict[str, Decided]) -> None:
        with tempfile.TemporaryDirectory(dir=self._into.parent, prefix=".faq-") as folder:
            new, decided = Path(folder) / self._into.name, Path(folder) / "verdicts"
            new.write_bytes(encode(entries))
            if not entries:
                raise SettingsError("no entry would be left; accept one at least")
            try:
                read_entries(new)
            except SettingsError as error:
                raise SettingsError(str(error).replace(str(new), str(self._into))) from None
            beside = others_beside(self._into).values()
            refuse_duplicates([*entries, *(entry for others in beside for entry in others)], self._into.parent)
            decided.write_bytes(msgspec.json.encode(verdicts))
            new.replace(self._into)
            decided.replace(self._verdicts)

    @property
    def _verdicts(self) -> Path:
        return self._into.with_name(f".{self._into.name}.review")


async def _fault(_: Request, error: Exception) -> Response:
    """Say why a file cannot be read or written."""
    file = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return _refusal(500, file)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers=_HEADERS)


def _refusal(status: int, why: str) -> Response:
    return Response(
        msgspec.json.encode({"error": why}), status_code=status, media_type="application/json", headers=_HEADERS
    )
