"""Ask in a chat, resume or stop its running answer at any gateway, and erase the chat.

Redis stores the cursor of the running answer until a client has received its end. An answer whose client has
disconnected continues, and a client that resumes the chat receives it from its beginning.
"""

import asyncio
from dataclasses import dataclass, field

from gateway.doors.ai_sdk.bodies import ChatQuestion
from gateway.doors.ai_sdk.parts import UiEncoder
from gateway.exchange.answer_events import AnswerEvents
from gateway.exchange.exchange import Exchange, News
from gateway.exchange.exchanges import Exchanges
from gateway.exchange.question import Asker
from gateway.request.cursor import ResumePoint
from shared.conversation.session_value import SessionValue
from shared.errors import ProtocolError, StoreUnavailable
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.wire.deadline import RESUMABLE_MS
from shared.wire.messages import ResponseCancel


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An answer sent to its client from its beginning. `first` are the items so far; Redis stores `cursor`."""

    exchange: Exchange
    response_id: str
    cursor: bytes
    first: list[News]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chats:
    """The chats of one gateway. Every method may raise `ProtocolError`."""

    exchanges: Exchanges
    cursors: SessionValue
    _aborting: Tasks = field(default_factory=lambda: Tasks(task_failed))

    async def ask(self, asker: Asker, question: ChatQuestion) -> Running:
        exchange = await self.exchanges.begin(asker, question.session)
        try:
            first = await self.exchanges.ask(asker, exchange, question)
            opened, seal = exchange.opened, exchange.seal
            assert opened is not None
            assert seal is not None
            cursor = seal.write([opened.resume_point]).encode()
            await self._keep(exchange, cursor, opened.resume_point)
        except BaseException:
            self.exchanges.leave(exchange, keep=True)
            raise
        return Running(exchange=exchange, response_id=opened.created.response_id, cursor=cursor, first=first)

    async def _keep(self, exchange: Exchange, cursor: bytes, told: ResumePoint) -> None:
        """Store the answer's cursor. Without Redis the answer continues but cannot be resumed."""
        kept_s = (told.deadline_ms + RESUMABLE_MS) / 1_000
        try:
            await self.cursors.put(exchange.session.key, cursor, generation=told.generation, kept_s=kept_s)
        except StoreUnavailable:
            metrics.history_unavailable.labels("lost").inc()

    async def resume(self, asker: Asker, session: str) -> Running | None:
        """Return the chat's running answer, or one whose end no client has received; None if there is no such
        answer."""
        async with self.exchanges.visit(asker, session) as exchange:
            found = await self._find(exchange)
        if found is None:
            return None
        response_id, cursor = found
        exchange = await self.exchanges.resume(asker, session, cursor.decode())
        return Running(exchange=exchange, response_id=response_id, cursor=cursor, first=[])

    async def _find(self, exchange: Exchange) -> tuple[str, bytes] | None:
        """Return the id and the cursor of the session's answer. Raises `ProtocolError`."""
        await self.exchanges.charge_lookup(exchange)
        try:
            cursor = await self.cursors.find(exchange.session.key)
        except StoreUnavailable:
            metrics.history_unavailable.labels("read").inc()
            raise ProtocolError("history_unavailable", "try again", kind="server_error", retriable=True) from None
        told = exchange.seal.read(cursor.decode(errors="replace")) if cursor and exchange.seal is not None else None
        return (told[0].response_id, cursor) if cursor and told else None

    def answer_events(self, running: Running, encoder: UiEncoder) -> AnswerEvents:
        return AnswerEvents(exchanges=self.exchanges, exchange=running.exchange, encoder=encoder, first=running.first)

    async def remove_cursor(self, running: Running) -> None:
        """Remove the cursor after a client has received the end."""
        try:
            await self.cursors.remove(running.exchange.session.key, running.cursor)
        except StoreUnavailable:
            metrics.history_unavailable.labels("lost").inc()

    async def stop(self, asker: Asker, session: str) -> None:
        """Cancel the chat's running answer, at any gateway, if there is one."""
        exchange = await self.exchanges.begin(asker, session)
        try:
            found = await self._find(exchange)
            if found is None:
                return
            response_id, cursor = found
            if self.exchanges.gateway.inflight.named(exchange.session.key, response_id, None) is None:
                self.exchanges.leave(exchange, keep=True)
                exchange = await self.exchanges.resume(asker, session, cursor.decode())
            await self.cancel(Running(exchange=exchange, response_id=response_id, cursor=cursor, first=[]))
        finally:
            self.exchanges.leave(exchange, keep=True)

    async def cancel(self, running: Running) -> None:
        """Cancel an answer of this gateway."""
        await self.exchanges.gateway.receive(running.exchange, ResponseCancel(response_id=running.response_id))
        await self.remove_cursor(running)

    def abort(self, running: Running, wait_s: float) -> None:
        """Detach from an answer; cancel it after `wait_s` unless another session has attached."""
        self._aborting.start(self._abort(running, wait_s))

    async def _abort(self, running: Running, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            if not running.exchange.done:
                await self.cancel(running)
        finally:
            self.exchanges.leave(running.exchange, keep=True)

    async def close(self) -> None:
        await self._aborting.cancel()

    async def erase(self, asker: Asker, session: str) -> None:
        async with self.exchanges.visit(asker, session) as exchange:
            await self.exchanges.erase(exchange)
