"""A session that survives its sockets, following the protocol, and records in a ledger all that it sends and receives.

When its socket breaks, the session waits a jittered moment and connects to either gateway with its session id and last
cursor. The answers that `recovered` names continue. The other questions are sent again with the same `event_id`.

When its gateway announces that it closes (4001), open answers continue there, and the session sends no new question to
it. A session with a new question connects to another gateway immediately; the others wait for the announced time.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ops.lab.client.dialogue import Dialogue
from shared.client.telling import ConnectFailed
from shared.wire.messages import (
    ErrorEvent,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    Resume,
    ServerMessage,
    SessionClosing,
    SessionStart,
)
from tests.chaos.ledger.requests import AnswerEvent, Ledger, Question, conversation_of

_RETRY_S: Final = 1.0
_BACKOFF_S: Final = (0.05, 0.4)


class Customer:
    """`run` until it is cancelled. `door()` gives a way to try and its address."""

    def __init__(
        self, session: str, ledger: Ledger, door: Callable[[], tuple[str, str]], chance: random.Random
    ) -> None:
        self.session = session
        self._ledger = ledger
        self._door = door
        self._chance = chance
        self._cursor: str | None = None
        self._cursor_s = 0.0  # when it came
        self._open: dict[str, Question] = {}
        self._told: set[str] = set()
        self._dialogue: Dialogue | None = None
        self._lost = asyncio.Event()
        self._back_after_s: float | None = None
        self._to_ask = asyncio.Event()
        self._way = ""
        self.online = asyncio.Event()

    async def run(self) -> None:
        try:
            while True:
                if await self._connect():
                    await self._lost.wait()
                await self._rest()
        finally:
            if self._dialogue is not None:
                self._dialogue.close()

    async def _rest(self) -> None:
        """Before the next try."""
        wait_s, self._back_after_s = self._back_after_s, None
        if wait_s is not None and not self._open:
            self._to_ask.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._to_ask.wait()
        await asyncio.sleep(self._chance.uniform(*_BACKOFF_S))

    def ask(self, question: Question) -> None:
        """Now, or as soon as there is a socket."""
        self._open[question.event_id] = question
        self._to_ask.set()
        self._ledger.asked(question, time.monotonic())
        if self._back_after_s is not None:
            self._go_elsewhere()
        else:
            self._send(question)

    def _go_elsewhere(self) -> None:
        """Hang up; `run` does the rest."""
        if self._dialogue is not None and self.online.is_set():
            self._dialogue.close()

    def cut(self) -> None:
        """Drop the socket without a word."""
        if self._dialogue is not None and self.online.is_set():
            self._dialogue.cut()

    def cannot_be_reached(self, way: str) -> None:
        """Record this session as absent if it uses that route, which passes no data for a while with its
        sockets open."""
        if self.online.is_set() and self._way == way:
            self._ledger.lost(self.session, time.monotonic(), "the network is silent")

    async def _connect(self) -> bool:
        self._way, url = self._door()
        self._lost.clear()
        self._back_after_s = None
        self._ledger.dialled(self.session, time.monotonic(), self._way)
        self._dialogue = dialogue = Dialogue(self._hear, self._lose)
        cursor, age_ms = self._cursor, int((time.monotonic() - self._cursor_s) * 1_000)
        resume = Resume(cursor=cursor, age_ms=age_ms) if cursor is not None else None
        try:
            created = await dialogue.open(url, self._start(resume))
        except ConnectFailed as error:
            dialogue.close()
            self._ledger.lost(self.session, time.monotonic(), str(error))
            return False
        if dialogue.lost:  # in the same breath
            self._ledger.lost(self.session, time.monotonic(), "it ended at once")
            return False
        assert dialogue.opened_s is not None, "the session stands"
        self._ledger.opened(
            self.session,
            dialogue.opened_s,
            resumed=cursor is not None,
            recovered=created.recovered,
            replayed=created.replayed,
        )
        self.online.set()
        for question in list(self._open.values()):
            # An undelivered message is in no cursor.
            if not (created.recovered and question.event_id in self._told):
                self._ask_again(question)
        return True

    def _start(self, resume: Resume | None) -> SessionStart:
        return SessionStart(session_id=conversation_of(self.session), resume=resume)

    def _ask_again(self, question: Question) -> None:
        if question.event_id in self._open and self.online.is_set():
            self._ledger.asked_again(question.event_id, time.monotonic())
            self._send(question)

    def _send(self, question: Question) -> None:
        """Send the question with the rest of its time as the deadline."""
        if self._dialogue is None or not self.online.is_set():
            return
        left_ms = max(1, int((self._ledger.pages[question.event_id].due_s - time.monotonic()) * 1_000))
        request = ResponseCreate(
            event_id=question.event_id,
            input=question.text,
            max_output_tokens=question.max_output_tokens,
            temperature=question.temperature,
            first_token_ms=min(question.first_token_ms, left_ms),
            deadline_ms=min(question.deadline_ms, left_ms),
        )
        self._dialogue.send(request)

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        if isinstance(message, SessionClosing):
            self._ledger.told_to_go(self.session, now_s, message.reason)
            self._back_after_s = message.reconnect_after_ms / 1_000
        if not isinstance(message, AnswerEvent):
            return
        self._ledger.heard(self.session, message, now_s)
        match message:
            case ResponseCreated():
                self._told.add(message.event_id)
                self._cursor, self._cursor_s = message.cursor or self._cursor, now_s
            case ResponseDelta():
                self._cursor, self._cursor_s = message.cursor, now_s
            case ResponseDone():
                self._cursor, self._cursor_s = message.cursor, now_s
                self._settled(message.response.id)
            case ErrorEvent():
                self._refused(message)

    def _settled(self, response_id: str) -> None:
        for event_id in [name for name in self._open if self._ledger.pages[name].response_id == response_id]:
            del self._open[event_id]

    def _refused(self, message: ErrorEvent) -> None:
        """Ask again after a retriable refusal of an accepted question, or at another gateway if this one shuts down."""
        question = self._open.get(message.event_id or "")
        if question is None:
            return
        if message.error.code == "shutting_down":
            self._go_elsewhere()
        elif message.error.retryable and self._ledger.pages[question.event_id].accepted:
            delay_s = (message.error.retry_after_ms or 0) / 1_000 or _RETRY_S
            asyncio.get_running_loop().call_later(delay_s, self._ask_again, question)
        else:
            del self._open[question.event_id]

    def _lose(self) -> None:
        if self.online.is_set():
            self.online.clear()
            self._ledger.lost(self.session, time.monotonic(), "it ended")
        self._lost.set()


async def ended(task: "asyncio.Task[None]") -> None:
    """Cancel it and wait."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
