"""The HTTP paths that edges call at the centre (docs/edge.md). Every request has the edge's token, and can only read
and write data of the tenant (the shop) that the token names."""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from gateway.access.identity import Identity
from gateway.http.handlers import Answer, app_of
from gateway.http.requests import HttpRequests
from gateway.http.statuses import error_headers, status_of
from gateway.serving.erasing import Erasing
from shared.conversation.history import History
from shared.conversation.journal import CLOCK_HEADER, Journalled
from shared.errors import BrokerUnavailable, ProtocolError, SettingsError, StoreUnavailable
from shared.faq.live import Fingerprint, LiveFaq, fingerprint
from shared.process.clock import wire_unix_ms
from shared.telemetry.logs import get_logger
from shared.versions.faq_bundle import Bundle
from shared.wire.lenient import UNREADABLE, lenient_json
from shared.wire.outcome import ErrorDetail
from shared.wire.session_key import SessionKey

EDGE: Final = "/edge"
_TOO_OLD: Final = "no erasure since their questions is known: an outage was too long, or the edge's clock is wrong"
_PLACE: Final = re.compile(r"[0-9]{1,18}")
_LONGEST_DELAY_MS: Final = 60_000
log = get_logger()
_encode: Final = msgspec.json.Encoder().encode
_entries: Final = lenient_json(list[Journalled])


@dataclass(slots=True, kw_only=True)
class EdgeDoor:
    """`signed` is the file of the signed FAQ; None if edges are not served."""

    http: HttpRequests
    signed: Path | None
    faq: LiveFaq
    history: History
    erasing: Erasing
    _seen: Fingerprint = ()
    _bundle: Bundle | None = field(default=None, init=False)

    def app(self) -> Starlette:
        paths = (("GET", "/faq", self._faq), ("GET", "/erasures", self._erasures), ("POST", "/history", self._add))
        return app_of(paths, "edge", _refusal)

    async def _identity(self, request: Request) -> Identity:
        """Return whose token an edge has sent. Raises `ProtocolError`."""
        identity = await self.http.exchanges.identify(self.http.asker(request))
        if not identity.edge:
            raise _unauthorized("this token is not an edge's; make one with: replyline token --edge")
        if self.signed is None:
            raise _unavailable(
                "edges_not_served", "this gateway serves no edges: set REPLYLINE_EDGE__SIGNED_FAQ (replyline faq sign)"
            )
        return identity

    async def _identity_with_log(self, request: Request) -> Identity:
        """Return whose token an edge has sent, once all erasures are known here. Raises `ProtocolError`."""
        identity = await self._identity(request)
        if not self.erasing.log.whole:
            raise _unavailable("history_unavailable", "the erasures are being loaded; try again")
        return identity

    async def _faq(self, request: Request) -> Answer:
        await self._identity(request)
        bundle = self._current()
        headers = {
            "etag": f'"{bundle.version}"',
            "replyline-signature": b64encode(bundle.signature).decode(),
        }
        if request.headers.get("if-none-match") == headers["etag"]:
            return HttpResponse(status_code=304, headers=headers)
        return HttpResponse(bundle.document, headers=headers, media_type="application/json")

    def _current(self) -> Bundle:
        """Return the signed FAQ, which is the one in service. Raises `ProtocolError` if no signed FAQ is loaded."""
        assert self.signed is not None, "no edge is served without it"
        seen = fingerprint(self.signed)
        if seen != self._seen or self._bundle is None:
            try:
                self._bundle = Bundle.open(self.signed)
            except SettingsError as error:
                raise _unavailable("faq_not_signed", str(error)) from None
            self._seen = seen
        if self._bundle.entries != self.faq.index.entries:
            raise _unavailable("faq_not_signed", "the FAQ has changed since it was signed; run: replyline faq sign")
        return self._bundle

    async def _erasures(self, request: Request) -> Answer:
        tenant = (await self._identity_with_log(request)).tenant
        after = request.query_params.get("after")
        if after is not None and not _PLACE.fullmatch(after):
            raise ProtocolError(
                "invalid_field", "after is the number that an earlier answer gave as next", param="after"
            )
        missed = self.erasing.log.since(None if after is None else int(after), tenant)
        return HttpResponse(_encode(missed), media_type="application/json")

    async def _add(self, request: Request) -> Answer:
        """Store what an edge's journal has, in its order; an entry that was stored before changes nothing."""
        ahead_ms = _ahead_ms(request)  # before the body, which a slow line takes minutes to send
        identity = await self._identity_with_log(request)
        tenant, body = identity.tenant, await self.http.body(request)
        if self.http.exchanges.has_expired(identity):
            raise _unauthorized("the token has expired or was revoked while the body was sent; send it with a new one")
        try:
            entries = _entries(body)
        except UNREADABLE as error:
            raise ProtocolError("invalid_field", f"this is no journal of an edge: {error}") from None
        now_unix_ms = int(wire_unix_ms())
        entries = [entry.at_centre(ahead_ms, now_unix_ms) for entry in entries]
        try:
            dropped = [entry for entry in entries if not await self._take(SessionKey(tenant, entry.session_id), entry)]
        except (StoreUnavailable, BrokerUnavailable):
            raise _unavailable("history_unavailable", "it cannot be kept now; try again") from None
        if dropped:
            log.warning("edge_turns_dropped", tenant=tenant, turns=len(dropped), cause=_TOO_OLD)
        return HttpResponse(_encode({"taken": len(entries)}), media_type="application/json")

    async def _take(self, session: SessionKey, entry: Journalled) -> bool:
        """Store a turn once, or erase a conversation; return False for a turn that is too old to be stored. Raises
        `StoreUnavailable`, `BrokerUnavailable`."""
        if entry.erased is not None:
            await self.erasing.erase_for_edge(session, entry)
        elif entry.turn is not None and not self.erasing.was_erased(session, entry.turn):
            if self.erasing.is_too_old(entry.turn):
                return False
            await self.history.take(session, entry.turn, entry)
        return True


def _ahead_ms(request: Request) -> int:
    """Return how far the edge's clock is ahead of this one; 0 if that may be the line's delay or is unknown."""
    sent_unix_ms = request.headers.get(CLOCK_HEADER, "")
    if not _PLACE.fullmatch(sent_unix_ms):
        return 0
    ahead_ms = int(sent_unix_ms) - int(wire_unix_ms())
    return ahead_ms if abs(ahead_ms) > _LONGEST_DELAY_MS else 0


def _unauthorized(message: str) -> ProtocolError:
    return ProtocolError("unauthorized", message, kind="authentication_error", param="token")


def _unavailable(code: str, message: str) -> ProtocolError:
    return ProtocolError(code, message, kind="server_error", retriable=True)


def _refusal(error: ErrorDetail) -> HttpResponse:
    return HttpResponse(_encode({"error": error}), status_of(error), error_headers(error), "application/json")
