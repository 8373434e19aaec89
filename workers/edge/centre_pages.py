"""HTTP requests of an edge to its centre: the FAQ, erasures and the journal of answers. If the centre does not answer,
or answers with an error, `CentreAway` is raised."""

import ssl
from base64 import b64decode
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import msgspec

from shared.conversation.erasure_log import Missed
from shared.conversation.journal import CLOCK_HEADER
from shared.errors import ReplylineError
from shared.process.clock import monotonic_s, wire_unix_ms
from shared.settings.credential_files import read_password
from shared.settings.edge import EdgeSettings

_SILENCE_S: Final = 5.0  # of a page that is coming
_OK, _SAME = 200, 304
_NEVER: Final = frozenset({400, 413})  # what is said is wrong, or too large


class CentreAway(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The centre did not answer, or refused the request; in the second case `answered` is set."""

    code = "centre_away"
    retriable = True

    def __init__(self, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        self.answered = answered


class FaqUnsigned(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The centre answered, but it has no signed FAQ, or its FAQ was changed after it was signed."""

    code = "faq_not_signed"
    retriable = True


class JournalRefused(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "journal_refused"


@dataclass(frozen=True, slots=True)
class FaqPage:
    """A version of the FAQ and its signature. They are None and empty if the edge has the centre's version already."""

    document: bytes | None = None
    signature: bytes = b""


class CentrePages:
    """An HTTP client for the centre's pages; to be closed. Methods raise `CentreAway`. There is no limit for a whole
    page, since its time depends on its size and the link; a caller that no longer waits cancels the call."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._tls = ssl.create_default_context()
        self._http = self._client()

    def _client(self) -> httpx2.AsyncClient:
        timeout = httpx2.Timeout(None, read=_SILENCE_S, connect=_SILENCE_S)
        return httpx2.AsyncClient(
            base_url=f"{self._settings.http_url}/edge",
            timeout=timeout,
            follow_redirects=False,
            trust_env=False,
            verify=self._tls,
        )

    async def reconnect(self) -> None:
        """Close all connections and fail the open requests: the link was cut, and its connections may be dead."""
        old, self._http = self._http, self._client()
        await old.aclose()

    async def faq(self, version: int | None) -> FaqPage:
        """Return the centre's FAQ; an empty page if `version` is the centre's. Raises `FaqUnsigned`."""
        headers = {} if version is None else {"if-none-match": f'"{version}"'}
        got = await self._call("GET", "/faq", headers=headers)
        if got.status_code == _SAME:
            return FaqPage()
        try:
            return FaqPage(got.content, b64decode(got.headers["replyline-signature"]))
        except (KeyError, ValueError):
            raise CentreAway(f"{self._settings.http_url} is no centre of edges", answered=True) from None

    async def erasures(self, after: int | None) -> tuple[Missed, float]:
        """Return the erasures after that position, and the round trip in milliseconds without the time to connect. If
        `after` is None, only the current position is returned."""
        began_s = monotonic_s()

        async def trace(name: str, _: object) -> None:
            nonlocal began_s
            if name == "http11.send_request_headers.started":
                began_s = monotonic_s()

        params = {} if after is None else {"after": after}
        got = await self._call("GET", "/erasures", params=params, extensions={"trace": trace})
        took_ms = (monotonic_s() - began_s) * 1_000
        try:
            return msgspec.json.decode(got.content, type=Missed), took_ms
        except msgspec.DecodeError as error:
            cause = f"{self._settings.http_url} is no centre of edges: {error}"
            raise CentreAway(cause, answered=True) from None

    async def add(self, entries: bytes, limit_s: float) -> None:
        """Send what the journal has. Raises `JournalRefused` if it can never be stored."""
        timeout = httpx2.Timeout(limit_s, connect=_SILENCE_S)
        headers = {CLOCK_HEADER: str(int(wire_unix_ms()))}
        await self._call("POST", "/history", content=entries, timeout=timeout, headers=headers)

    async def _call(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> Any:
        assert self._settings.token_file is not None, "an edge has a token"
        try:
            bearing = {"authorization": f"Bearer {read_password(self._settings.token_file)}"}
            got = await self._http.request(method, path, headers=bearing | (headers or {}), **more)
        except (httpx2.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed by `reconnect`
            raise CentreAway(f"{self._settings.http_url} does not answer ({type(error).__name__})") from None
        except ValueError as error:
            raise CentreAway(f"REPLYLINE_EDGE__TOKEN_FILE: {error}") from None
        if got.status_code in {_OK, _SAME}:
            return got
        said = _said(got.content)
        why = f"{self._settings.http_url}/edge{path} answers {got.status_code}: {said.message}"
        if said.code == FaqUnsigned.code:
            raise FaqUnsigned(why)
        if method == "POST" and got.status_code in _NEVER:
            raise JournalRefused(why)
        raise CentreAway(why, answered=True)

    async def close(self) -> None:
        await self._http.aclose()


class _ErrorPage(msgspec.Struct):
    message: str = "not a page for edges; does REPLYLINE_EDGE__CENTRE_HTTP lead to the gateways' HTTP port?"
    code: str = ""


class _Refusal(msgspec.Struct):
    error: _ErrorPage


def _said(content: bytes) -> _ErrorPage:
    try:
        return msgspec.json.decode(content, type=_Refusal).error
    except msgspec.DecodeError:
        return _ErrorPage()
