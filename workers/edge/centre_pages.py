"""The centre's pages for edges, over HTTP. A centre that does not answer, or refuses, is away."""

from base64 import b64decode
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import msgspec

from shared.conversation.erasure_log import Missed
from shared.errors import ReplylineError
from shared.process.clock import monotonic_s
from shared.settings.credential_files import read_password
from shared.settings.edge import EdgeSettings

_TIMEOUT_S: Final = 5.0
_OK, _SAME = 200, 304
_NEVER: Final = frozenset({400, 413})  # what is said is wrong, or too large


class CentreAway(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "centre_away"
    retriable = True


class FaqUnsigned(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The centre is there, and has no signed FAQ, or has changed it since it was signed."""

    code = "faq_not_signed"
    retriable = True


class JournalRefused(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "journal_refused"


@dataclass(frozen=True, slots=True)
class FaqPage:
    """`document` and `signature` are None where the version asked with is still the centre's. `took_ms` is the round
    trip's, `erasures` the place in the erasures."""

    took_ms: float
    erasures: int
    document: bytes | None = None
    signature: bytes = b""


class CentrePages:
    """To be closed. Methods raise `CentreAway`."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._http = httpx2.AsyncClient(
            base_url=f"{settings.http_url}/edge", timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False
        )

    async def faq(self, version: int | None) -> FaqPage:
        """Return the FAQ, unless that version is the centre's. Raises `FaqUnsigned`."""
        begun_s = monotonic_s()
        headers = {} if version is None else {"if-none-match": f'"{version}"'}
        got = await self._call("GET", "/faq", headers=headers)
        took_ms = (monotonic_s() - begun_s) * 1_000
        try:
            erasures = int(got.headers["replyline-erasures"])
            if got.status_code == _SAME:
                return FaqPage(took_ms, erasures)
            return FaqPage(took_ms, erasures, got.content, b64decode(got.headers["replyline-signature"]))
        except (KeyError, ValueError):
            raise CentreAway(f"{self._settings.http_url} is no centre of edges") from None

    async def erasures(self, after: int | None) -> Missed:
        """Return the erasures from that place on; None: only where to go on from."""
        got = await self._call("GET", "/erasures", params={} if after is None else {"after": after})
        try:
            return msgspec.json.decode(got.content, type=Missed)
        except msgspec.DecodeError as error:
            raise CentreAway(f"{self._settings.http_url} is no centre of edges: {error}") from None

    async def add(self, entries: bytes) -> None:
        """Hand over what the journal has. Raises `JournalRefused` where it can never be taken."""
        await self._call("POST", "/history", content=entries)

    async def _call(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> Any:
        assert self._settings.token_file is not None, "an edge has a token"
        try:
            bearing = {"authorization": f"Bearer {read_password(self._settings.token_file)}"}
            got = await self._http.request(method, path, headers=bearing | (headers or {}), **more)
        except httpx2.HTTPError as error:
            raise CentreAway(f"{self._settings.http_url} does not answer ({type(error).__name__})") from None
        except ValueError as error:
            raise CentreAway(f"edge.token_file: {error}") from None
        if got.status_code in {_OK, _SAME}:
            return got
        said = _said(got.content)
        why = f"{self._settings.http_url}/edge{path} answers {got.status_code}: {said.message}"
        if said.code == FaqUnsigned.code:
            raise FaqUnsigned(why)
        raise JournalRefused(why) if method == "POST" and got.status_code in _NEVER else CentreAway(why)

    async def close(self) -> None:
        await self._http.aclose()


class _Said(msgspec.Struct):
    message: str = "not a page for edges; does edge.centre_http lead to the gateways' HTTP port?"
    code: str = ""


class _Refusal(msgspec.Struct):
    error: _Said


def _said(content: bytes) -> _Said:
    try:
        return msgspec.json.decode(content, type=_Refusal).error
    except msgspec.DecodeError:
        return _Said()
