"""Handle one request of HTTP or gRPC as a short session: open the session, ask the question, wait for the first text so
that an error can still set the status, and close the session when the answer has been written."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from gateway.access.identity import Identity, TokenGate
from gateway.destination.memory_watch import MemoryWatch
from gateway.exchange.exchange import Exchange, News
from gateway.exchange.own_sessions import OwnSessions
from gateway.exchange.question import Asker, ClientQuestion, digest
from gateway.exchange.refusals import RefusalError, no_answer
from gateway.serving.gateway import Gateway
from gateway.session.protocol import Session
from gateway.session.session_limits import SessionLimits
from shared.conversation.history import History
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.settings.origins import origin_may_connect
from shared.telemetry.faults import task_failed
from shared.wire.messages import ResponseCancel, ResponseCreate, Resume, SessionDelete, SessionStart
from shared.wire.outcome import ErrorDetail, Response
from shared.wire.session_key import SessionKey

KEEP_ALIVE_S: Final = 12.0
# If a client whose socket broke does not ask again within this time, its answer is cancelled.
_GRACE_S: Final = 5.0
_MAX_REPEATED: Final = 2_000


@dataclass(slots=True, kw_only=True)
class Exchanges:
    gateway: Gateway
    allowed_origins: tuple[str, ...]
    session_limits: SessionLimits
    tenant: str
    gate: TokenGate | None
    memory: MemoryWatch
    history: History
    _own: OwnSessions = field(init=False)
    _asking: set[tuple[SessionKey, str]] = field(default_factory=set)  # not yet in the in-flight table
    # The newest event of a question that was asked again in its session, by its first event.
    _repeated: OrderedDict[tuple[SessionKey, str], str] = field(default_factory=OrderedDict)
    _leaving: Tasks = field(default_factory=lambda: Tasks(task_failed))

    def __post_init__(self) -> None:
        self._own = OwnSessions(self.gateway.resuming.key)

    def own_session(self, asker: Asker, question: ClientQuestion) -> str:
        """Return the conversation of a question that names none: a new one, or that of its first try. Raises
        `ProtocolError`."""
        # Without a gate a token is arbitrary text, and many clients send the same one.
        sender = asker.own_address if self.gate is None else asker.token or ""
        return self._own.name(sender, asker, question, wire_unix_ms(), is_shared=self.gate is None)

    async def begin(
        self, asker: Asker, session_name: str | Callable[[], str], resume: Resume | None = None
    ) -> Exchange:
        """Begin a session; `leave` ends it. If `session_name` is a function, it is called once the token is valid.
        Raises `ProtocolError`."""
        self.check(asker)
        token = asker.token if self.gate is not None else None
        exchange = Exchange(self.new_session(asker, session_name))
        if self.gateway.connect(exchange):
            await self.gateway.receive(exchange, SessionStart(token=token, resume=resume))
        if exchange.failure is not None:
            self.gateway.disconnect(exchange)
            raise RefusalError(exchange.failure)
        return exchange

    @asynccontextmanager
    async def visit(self, asker: Asker, session_name: str) -> AsyncIterator[Exchange]:
        """Begin a session for the duration of the block. Its answers continue afterwards. Raises `ProtocolError`."""
        exchange = await self.begin(asker, session_name)
        try:
            yield exchange
        finally:
            self.leave(exchange, keep=True)

    async def resume(self, asker: Asker, session_name: str, cursor: str, age_ms: int | None = None) -> Exchange:
        """Begin a session that continues the answer of a cursor after the text that its client has. Raises
        `ProtocolError`."""
        exchange = await self.begin(asker, session_name, Resume(cursor=cursor, age_ms=age_ms))
        if len(exchange.points) == 1:
            exchange.event_id = exchange.points[0].event_id
            return exchange
        self.gateway.disconnect(exchange)
        known = exchange.seal.read(cursor) if exchange.seal is not None else None
        if known and not exchange.points and all(each.log and each.resumable(wire_unix_ms()) for each in known):
            raise ProtocolError(
                "queue_full",
                "this gateway has too many answers in flight; try again",
                kind="overloaded_error",
                retriable=True,
            )
        raise ProtocolError("response_not_found", "the cursor names no open answer", param="cursor")

    async def charge_lookup(self, exchange: Exchange) -> None:
        """Charge the look-up of a name that the client sent, at the cost of a resume. Raises `ProtocolError`."""
        await self.gateway.rate_limits.quotas.charge("resume", exchange.session.caller)

    async def identify(self, asker: Asker) -> Identity:
        """Return the identity in the token of a request that opens no session. It is charged, and its key is fetched,
        as in a session. Raises `ProtocolError`."""
        if self.gate is None or asker.token is None:
            raise ProtocolError(
                "unauthorized",
                "send a token to a gateway that checks tokens: Authorization: Bearer …",
                kind="authentication_error",
                param="token",
            )
        session = self.new_session(asker, "")
        self.gateway.rate_limits.quotas.charge_here("token", session.caller)
        await self.gateway.prepare_key(asker.token)
        return self.gate.identify(asker.token, now_unix_ms())

    def has_expired(self, identity: Identity) -> bool:
        """Return whether an identity's token has expired, or was revoked, since `identify`."""
        return self.gate is None or self.gate.expired(identity, now_unix_ms())

    def check(self, asker: Asker) -> None:
        """Raise `ProtocolError` if this sender may ask nothing."""
        self.check_memory()
        if not origin_may_connect(asker.origins, self.allowed_origins):
            raise ProtocolError("origin_not_allowed", "pages of this origin may not use this gateway")
        if self.gate is not None and asker.token is None:
            raise ProtocolError(
                "unauthorized", "send the token as Authorization: Bearer …", kind="authentication_error"
            )

    def check_memory(self) -> None:
        """Raise `ProtocolError` if memory is too short for another client."""
        if self.memory.refuses:
            raise ProtocolError(
                "memory_full", "this gateway has no memory left; try again", kind="overloaded_error", retriable=True
            )

    def charging_decoding(self, address: str, size: int) -> AbstractContextManager[None]:
        """Charge an address if the block refuses a message of this size, or takes long
        (`Quotas.charging_decoding`)."""
        return self.gateway.rate_limits.quotas.charging_decoding(address, size)

    def new_session(self, asker: Asker, name: str | Callable[[], str]) -> Session:
        return Session(
            connection_id=f"conn_{secrets.token_hex(8)}",
            fresh_session_id=name,
            tenant=self.tenant,
            gate=self.gate,
            limits=self.session_limits,
            now_unix_ms=now_unix_ms(),
            address=asker.address,
            subject=asker.subject,
        )

    async def ask(self, asker: Asker, exchange: Exchange, question: ClientQuestion) -> list[News]:
        """Ask a question and return the first items, which assure that there is an answer. Raises `ProtocolError` if
        the answer is missing, or only "busy"."""
        event_id = self._event_of(exchange, question, asker.key, retry=asker.is_retry)
        options, exchange.ignored = question.options, question.ignored
        if question.system and exchange.session.instructs:
            options = options | {"instructions": question.system}
        elif question.system:
            exchange.ignored += ("instructions",)
        asked = ResponseCreate(
            event_id=event_id,
            input=question.input,
            deadline_ms=asker.deadline_ms,
            metadata=question.metadata,
            traceparent=asker.traceparent,
            turns=question.turns,
            **options,
        )
        exchange.event_id = event_id
        own = (exchange.session.key, event_id)
        self._asking.add(own)
        try:
            await self.gateway.receive(exchange, asked, asker.received_unix_ms)
        finally:
            self._asking.discard(own)
        items = await self.first(exchange)
        if items and (error := self.failure_in(items)) is not None:
            raise RefusalError(error)
        return items

    def _event_of(self, exchange: Exchange, question: ClientQuestion, key: str | None, *, retry: bool) -> str:
        """Return the event id to ask with. A retry uses the id of the last try in its session.

        A cancelled or failed question gets a new id, as does the same text without a retry mark or a key. Raises
        `ProtocolError` if the key was used for another question, as far as this gateway knows: the question of an
        adopted answer may not have been read here.
        """
        session = exchange.session.key
        base = digest("key", key) if key is not None else digest("body", question.body)
        event_id = self._repeated.get((session, base), base)
        known = self.gateway.inflight.find(session, event_id)
        same = key is not None or retry
        if known is None:
            if same or (session, event_id) not in self._asking:
                return event_id
        elif known.answer.response is None or known.answer.response.status not in {"cancelled", "failed"}:
            if key is not None and known.input and known.input != question.input:
                why = "this Idempotency-Key was used for another question; send a new one"
                raise ProtocolError("key_reused", why, param="input")
            if same or (not known.answer.done and self.gateway.connections.of(known) is None):
                return event_id
        event_id = self._repeated[session, base] = f"{base}-{secrets.token_hex(8)}"
        self._repeated.move_to_end((session, base))
        if len(self._repeated) > _MAX_REPEATED:
            self._repeated.popitem(last=False)
        return event_id

    async def first(self, exchange: Exchange) -> list[News]:
        """Return the first items; empty if the client disconnects first."""
        items: list[News] = []
        while not items and not exchange.client_gone:
            items = await exchange.news(KEEP_ALIVE_S)
        return items

    async def end(self, exchange: Exchange, items: list[News]) -> Response | None:
        """Return the complete answer; None if the client disconnects first. Raises `ProtocolError` if there is no
        answer."""
        while not exchange.done and not exchange.client_gone:
            items += await exchange.news(KEEP_ALIVE_S)
        items += await exchange.news(0)
        if (error := self.failure_in(items)) is not None:
            raise RefusalError(error)
        return next((item for item in items if isinstance(item, Response)), None)

    def failure_in(self, items: list[News]) -> ErrorDetail | None:
        """Return the error in these items; None if they are part of an answer."""
        for item in items:
            if isinstance(item, ErrorDetail):
                return item
            if isinstance(item, Response):
                entry = self.gateway.inflight.get_any(item.id)
                return no_answer(item, late=entry is not None and entry.answer.fallback == "deadline")
        return None

    async def erase(self, exchange: Exchange) -> None:
        """Erase the conversation. Raises `ProtocolError`."""
        await self.gateway.receive(exchange, SessionDelete())
        for item in await self.first(exchange):
            if isinstance(item, ErrorDetail):
                raise RefusalError(item)

    def leave(self, exchange: Exchange, *, keep: bool) -> None:
        """End the session. Without `keep` its client cannot return to the answer, which is cancelled after `_GRACE_S`
        unless a retry has attached."""
        if keep or exchange.done or exchange.event_id is None:
            self.gateway.disconnect(exchange)
        else:
            self._leaving.start(self._give_up(exchange, exchange.event_id))

    async def _give_up(self, exchange: Exchange, event_id: str) -> None:
        try:
            await asyncio.sleep(_GRACE_S)
            entry = self.gateway.inflight.find(exchange.session.key, event_id)
            if entry is not None and not entry.answer.done and self.gateway.connections.of(entry) is exchange:
                await self.gateway.receive(exchange, ResponseCancel(target_event_id=event_id))
        finally:
            self.gateway.disconnect(exchange)

    async def stop(self) -> None:
        await self._leaving.cancel()
