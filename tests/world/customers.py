"""The customers of the chaos run, who here also cancel, erase, disconnect, repeat questions, flood and request a
person."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Final

from ops.lab.client.dialogue import Dialogue
from shared.client.telling import ConnectFailed
from shared.wire.messages import (
    ErrorEvent,
    Feedback,
    HandoffCreated,
    HandoffRequest,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    Resume,
    ServerMessage,
    SessionDelete,
    SessionDeleted,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
)
from shared.wire.outcome import Message
from tests.chaos.actors.client import Customer
from tests.chaos.ledger.requests import Ledger, Question, conversation_of
from tests.chaos.ledger.shipped import Shipped
from tests.world.oracles import Oracles, kafka_ails, redis_ails
from tests.world.processes import QUOTA
from tests.world.tokens import SESSION, STRANGERS, Issuer
from tests.world.virtual.network import Pipe

_HEARD_S: Final = 1.0
_FLOOD: Final = 150  # messages; the limit is 100 a minute
_GORGE: Final = 95  # units; the limit is QUOTA
_UNITS: Final[dict[Any, int]] = {SessionDelete: 10, HandoffRequest: 20, Feedback: 1}
_STRANGERS: Final = "what a stranger asks"
_SHORT_S, _LONG_S, _SHORTLY = (2.0, 6.0), 3_600.0, 0.3
_CLOSED_S: Final = 2.0  # after the token's expiry, the session is closed within this time


class _Stranger(Dialogue):
    """A client that sends questions before its session is accepted."""

    def send(self, message: Message) -> None:
        super().send(message)
        super().send(ResponseCreate(event_id="stranger", input=_STRANGERS))


class Shopper(Customer):
    """One tab of a customer, which reports breaches to the oracles. Another customer's `cursor` serves for an attempted
    theft; `_units` are the units that each customer may have been charged."""

    cursor: ClassVar[str | None] = None
    _units: ClassVar[Counter[str]] = Counter()

    def __init__(
        self,
        session: str,
        ledger: Ledger,
        door: Callable[[], tuple[str, str]],
        chance: random.Random,
        oracles: Oracles,
        issuer: Issuer,
    ) -> None:
        super().__init__(session, ledger, door, chance)
        self._oracles, self._issuer = oracles, issuer
        self._gorged: Dialogue | None = None
        self._let_in_until_s = 0.0
        self._thieves: list[asyncio.Task[None]] = []
        self._asked: list[Question] = []
        self._erasing: list[set[str]] = []  # the response ids of each erasure, as sets
        self._given_up: set[str] = set()
        self._erased: set[str] = set()
        self._anew: set[str] = set()
        self._flooded: Dialogue | None = None

    @property
    def _customer(self) -> str:
        return conversation_of(self.session)

    def _start(self, resume: Resume | None) -> SessionStart:
        self._units[self._customer] += 1
        life_s = self._chance.uniform(*_SHORT_S) if self._chance.random() < _SHORTLY else _LONG_S
        self._let_in_until_s = time.monotonic() + life_s
        return SessionStart(token=self._issuer.token(self.session, life_s), session_id=SESSION, resume=resume)

    def ask(self, question: Question) -> None:
        self._asked.append(question)
        super().ask(question)

    def cancel(self, event_id: str) -> None:
        """Cancel an answer that is still open."""
        if event_id in self._open:
            self._say(ResponseCancel(target_event_id=event_id))

    def act(self, what: str) -> None:
        """Do an action that is not a question."""
        match what:
            case "erase":
                self._erasing.append(self._give_up())
                self._say(SessionDelete())
            case "erase-elsewhere":
                asyncio.get_running_loop().create_task(self._erase_elsewhere())
            case "handoff":
                self._say(HandoffRequest(event_id=f"care-{len(self._asked)}"))
            case "leave":
                self._go_elsewhere()
            case "again":
                for question in self._asked[-2:]:
                    if question.event_id in self._told:  # else its client may receive it twice, which is correct
                        self._ask_again(question)
            case "refresh":
                self._say(SessionRefresh(token=self._issuer.token(self.session)))
            case _:
                self._abuse(what)

    def _give_up(self) -> set[str]:
        """Return the ids of the answers received so far, which are about to be erased."""
        pages = [self._ledger.pages[question.event_id] for question in self._asked]
        told = {page.response_id for page in pages if page.response_id is not None}
        self._given_up |= told
        return told

    def _ask_anew(self) -> None:
        """Ask the last erased question again, as a new question."""
        for question in self._asked[-1:]:
            if self._ledger.pages[question.event_id].response_id in self._erased:
                self._told.discard(question.event_id)
                self._anew.add(question.event_id)
                super().ask(question)

    async def _erase_elsewhere(self) -> None:
        """Erase from another device. Every gateway learns of the erasure a moment later."""
        told, done = self._give_up(), asyncio.Event()
        self._units[self._customer] += _UNITS[SessionDelete] + 1
        dialogue = Dialogue(lambda message, _: done.set() if isinstance(message, SessionDeleted) else None, done.set)
        with suppress(ConnectFailed, TimeoutError):
            await dialogue.open(
                self._door()[1], SessionStart(token=self._issuer.token(self.session), session_id=SESSION)
            )
            dialogue.send(SessionDelete())
            async with asyncio.timeout(_HEARD_S):
                await done.wait()
            if not (dialogue.lost or kafka_ails(self._oracles.plan)):
                await asyncio.sleep(_HEARD_S)
                self._erased |= told
        dialogue.close()

    def _abuse(self, what: str) -> None:
        """Send something that the gateway must refuse."""
        match what:
            case "flood":
                self._flooded = self._say_often(_FLOOD, ResponseCancel(response_id="nobody"))
            case "gorge":
                self._gorged = self._say_often(_GORGE, Feedback(event_id="care", response_id="nobody", rating="up"))
            case "intrude" | "steal":
                work = self._intrude() if what == "intrude" else self._steal()
                self._thieves.append(asyncio.get_running_loop().create_task(work))

    def _say_often(self, times: int, message: Any) -> Dialogue | None:
        """Send a message `times` times, and return the dialogue, or None while offline."""
        for _ in range(times):
            self._say(message)
        return self._dialogue if self.online.is_set() else None

    async def _intrude(self) -> None:
        """Connect with an invalid token, and send a question before the reply."""
        what = self._chance.choice(STRANGERS)
        start = SessionStart(token=self._issuer.strangers(what, self.session), session_id=SESSION)
        with suppress(ConnectFailed):
            await _Stranger(lambda *_: None, lambda: None).open(self._door()[1], start)
            self._oracles.breach("STRANGER", f"{self.session} with {what}")

    async def _steal(self) -> None:
        """Connect with another customer's cursor."""
        resume = Resume(cursor=Shopper.cursor) if Shopper.cursor is not None else None
        start = SessionStart(token=self._issuer.token(self.session), session_id=SESSION, resume=resume)
        with suppress(ConnectFailed):
            thief = Dialogue(lambda *_: None, lambda: None)
            if (await thief.open(self._door()[1], start)).recovered:
                self._oracles.breach("STRANGER", f"{self.session} with another's cursor")
            thief.close()

    def judge(self, rights: Shipped) -> None:
        """Report to the oracles what this customer has not received by the end of the run."""
        if self._flooded is not None and not self._flooded.lost:
            self._oracles.breach("RATE", f"{self.session}: {_FLOOD} messages at once, and none refused")
        if self._gorged is not None and not self._gorged.lost and not redis_ails(self._oracles.plan):
            self._oracles.breach(
                "QUOTA", f"{self.session}: {self._units[self._customer]} units at once, and none refused"
            )
        if self._oracles.published(_STRANGERS):
            self._oracles.breach("STRANGER", "what a stranger asked is published")
        self._oracles.forgotten(self.session, self._erased, self._ledger.pages.values(), rights)

    def pipe(self) -> Pipe | None:
        """Return this client's end of the connection."""
        wire = self._dialogue._wire if self._dialogue is not None and self.online.is_set() else None
        transport: object = None if wire is None else wire._transport
        return transport if isinstance(transport, Pipe) else None

    def silence(self) -> None:
        """Drop all packets of this client while its socket stays open."""
        self.cannot_be_reached(self._way)

    def _send(self, question: Question) -> None:
        self._units[self._customer] += 1
        super()._send(question)

    def _say(self, message: Any) -> None:
        self._units[self._customer] += _UNITS.get(type(message), 0)
        if self._dialogue is not None and self.online.is_set():
            self._dialogue.send(message)

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        self._check_token(message, now_s)
        match message:
            case SessionDeleted() if self._erasing:
                self._erased |= self._erasing.pop(0)
                self._ask_anew()
            case ResponseCreated():
                page = self._ledger.pages.get(message.event_id)
                if page is not None and page.response_id in self._given_up:
                    page.response_id = None
                self._check_erased(message.response_id, "asked anew" if message.event_id in self._anew else "")
                Shopper.cursor = message.cursor or Shopper.cursor
            case ResponseDelta():
                self._check_erased(message.response_id, message.delta)
            case ResponseDone():
                self._check_erased(message.response.id, message.response.output_text)
            case ErrorEvent():
                self._check_refusal(message.error.message)
                if (message.event_id or "").startswith("care"):  # the ledger does not record these
                    return
            case ErrorEvent() if message.error.code == "handoff_failed":
                return
            case HandoffCreated():
                self._oracles.handed(message.handoff_id)
        super()._hear(message, now_s)

    def _check_token(self, message: ServerMessage, now_s: float) -> None:
        """Check that nothing is received after the token's expiry."""
        if now_s > self._let_in_until_s + _CLOSED_S + self._oracles.clock_off_ms / 1e3:
            self._oracles.breach("EXPIRED", f"{self.session}: heard {type(message).__name__} after its token's end")
        if isinstance(message, SessionRefreshed):
            self._let_in_until_s = now_s + _LONG_S

    def _check_refusal(self, why: str) -> None:
        """Check that a refused client has sent something that is to be refused."""
        if "messages a minute" in why:
            self._flooded = self._gorged = None
        elif f"limit of this subject ({QUOTA} per minute)" in why:
            self._gorged = None
            if (units := self._units[self._customer]) <= QUOTA:
                self._oracles.breach("QUOTA", f"{self.session}: refused after {units} units of {QUOTA}")

    def _check_erased(self, response_id: str, text: str) -> None:
        """Check that no text of an answer that a confirmed erasure removed is received after the confirmation."""
        if response_id in self._erased and text:
            self._oracles.breach("ERASED", f"{response_id}: {text[:20]!r} was told after its erasure")
