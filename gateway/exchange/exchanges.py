"""Carry one request of a door through the gateway: begin its session, ask, wait for the first text, leave."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from gateway.access.identity import Identity, TokenGate
from gateway.destination.memory_watch import MemoryWatch
from gateway.exchange.exchange import Exchange, News
from gateway.exchange.own_sessions import OwnSessions
from gateway.exchange.question import Asker, Question, digest
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
# A client whose socket broke asks again within this, or its answer is given up.
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
    _asking: set[tuple[SessionKey, str]] = field(default_factory=set)  # on their way into the table
    # The last event of a question that was asked again in its session, by its first event.
    _repeated: OrderedDict[tuple[SessionKey, str], str] = field(default_factory=OrderedDict)
    _leaving: Tasks = field(default_factory=lambda: Tasks(task_failed))

    def __post_init__(self) -> None:
        self._own = OwnSessions(self.gateway.resuming.key)

    def own_session(self, asker: Asker, question: Question) -> str:
        """Return the conversation of a question that names none: a new one, or its first try's. Raises
        `ProtocolError`."""
        # Without a gate a token is any text, and many clients send the same.
        sender = asker.own_address if self.gate is None else asker.token or ""
        return self._own.name(sender, asker, question, wire_unix_ms())

    async def begin(
        self, asker: Asker, session_name: str | Callable[[], str], resume: Resume | None = None
    ) -> Exchange:
        """Begin a session of that name; a function is called for it once the token is valid. Raises `ProtocolError`;
        `leave` ends it."""
        self.check_memory()
        if not origin_may_connect(asker.origins, self.allowed_origins):
            raise ProtocolError("origin_not_allowed", "this page may not ask here")
        token = asker.token if self.gate is not None else None
        if self.gate is not None and token is None:
            raise ProtocolError(
                "unauthorized", "send the token as Authorization: Bearer …", kind="authentication_error"
            )
        exchange = Exchange(self.new_session(asker, session_name))
        if self.gateway.connect(exchange):
            await self.gateway.receive(exchange, SessionStart(token=token, resume=resume))
        if exchange.failure is not None:
            self.gateway.disconnect(exchange)
            raise RefusalError(exchange.failure)
        return exchange

    @asynccontextmanager
    async def visit(self, asker: Asker, session_name: str) -> AsyncIterator[Exchange]:
        """Begin a session of that name, and end it with the block: its answers continue. Raises `ProtocolError`."""
        exchange = await self.begin(asker, session_name)
        try:
            yield exchange
        finally:
            self.leave(exchange, keep=True)

    async def resume(self, asker: Asker, session_name: str, cursor: str, age_ms: int | None = None) -> Exchange:
        """Begin a session that continues the answer of that cursor after the text that its client has. Raises
        `ProtocolError`."""
        exchange = await self.begin(asker, session_name, Resume(cursor=cursor, age_ms=age_ms))
        if len(exchange.points) == 1:
            exchange.event_id = exchange.points[0].event_id
            return exchange
        self.gateway.disconnect(exchange)
        known = exchange.seal.read(cursor) if exchange.seal is not None else None
        if known and not exchange.points and all(each.log and each.resumable(wire_unix_ms()) for each in known):
            raise ProtocolError(
                "queue_full", "too many answers are in flight here", kind="overloaded_error", retriable=True
            )
        raise ProtocolError("response_not_found", "this cursor is of no answer here that is open", param="cursor")

    async def charge_lookup(self, exchange: Exchange) -> None:
        """Charge a look-up of what the client names, as for coming back. Raises `ProtocolError`."""
        await self.gateway.rate_limits.quotas.charge("resume", exchange.session.caller)

    async def identify(self, asker: Asker) -> Identity:
        """Return the identity of a token that opens no session: charged, and with its key at hand, as in one. Raises
        `ProtocolError`."""
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

    def check_memory(self) -> None:
        """Raise `ProtocolError` where no memory is left for another client."""
        if self.memory.refuses:
            raise ProtocolError("memory_full", "no memory is left", kind="overloaded_error", retriable=True)

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

    async def ask(self, asker: Asker, exchange: Exchange, question: Question) -> list[News]:
        """Ask, and return the first items, which assure the answer. Raises `ProtocolError` if there is no answer, or
        only "busy"."""
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

    def _event_of(self, exchange: Exchange, question: Question, key: str | None, *, retry: bool) -> str:
        """Return the event to ask by: a retry's is that of the last try in its session. A cancelled or failed question
        gets a new event; so do the same words without a mark or a key. Raises `ProtocolError` for a key that was
        another question's, as far as that is known: that of an adopted answer may not have been read here."""
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
                why = "this Idempotency-Key was another question's; send a new one"
                raise ProtocolError("key_reused", why, param="input")
            if same or (not known.answer.done and self.gateway.connections.of(known) is None):
                return event_id
        event_id = self._repeated[session, base] = f"{base}-{secrets.token_hex(8)}"
        self._repeated.move_to_end((session, base))
        if len(self._repeated) > _MAX_REPEATED:
            self._repeated.popitem(last=False)
        return event_id

    async def first(self, exchange: Exchange) -> list[News]:
        """Return the first items; none where the client is gone before."""
        items: list[News] = []
        while not items and not exchange.client_gone:
            items = await exchange.news(KEEP_ALIVE_S)
        return items

    async def end(self, exchange: Exchange, items: list[News]) -> Response | None:
        """Return the whole answer; None where the client is gone before that. Raises `ProtocolError` where there is
        none."""
        while not exchange.done and not exchange.client_gone:
            items += await exchange.news(KEEP_ALIVE_S)
        items += await exchange.news(0)
        if (error := self.failure_in(items)) is not None:
            raise RefusalError(error)
        return next((item for item in items if isinstance(item, Response)), None)

    def failure_in(self, items: list[News]) -> ErrorDetail | None:
        """Return the error in these items; None where the answer can be given."""
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
        """End the session. Without `keep` no client can return to its answer: cancel that after `_GRACE_S` unless a
        retry has attached."""
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
