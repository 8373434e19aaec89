"""The customers: those of the chaos run, who also cancel, erase, leave, ask again, flood and want a person."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ops.client.dialogue import Dialogue
from ops.client.protocol import ConnectFailed
from shared.wire.messages import (
    ErrorEvent,
    HandoffCreated,
    HandoffRequest,
    ResponseCancel,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    SessionDelete,
    SessionDeleted,
    SessionStart,
)
from tests.chaos.actors.client import Customer
from tests.chaos.ledger.requests import Ledger, Question
from tests.world.network import Pipe
from tests.world.oracles import Oracles, kafka_ails

_FLOOD: Final = 150  # messages, where 100 a minute are taken
_HEARD_S: Final = 1.0


class Shopper(Customer):
    """One customer; the oracles are told of what must not be."""

    def __init__(
        self,
        session: str,
        ledger: Ledger,
        door: Callable[[], tuple[str, str]],
        chance: random.Random,
        oracles: Oracles,
    ) -> None:
        super().__init__(session, ledger, door, chance)
        self._oracles = oracles
        self._asked: list[Question] = []
        self._erasing: list[set[str]] = []  # each the ids of answers, as are the sets
        self._given_up: set[str] = set()
        self._erased: set[str] = set()
        self._anew: set[str] = set()
        self._flooded: Dialogue | None = None

    def ask(self, question: Question) -> None:
        self._asked.append(question)
        super().ask(question)

    def cancel(self, event_id: str) -> None:
        """Stop an answer that is awaited."""
        if event_id in self._open:
            self._say(ResponseCancel(target_event_id=event_id))

    def act(self, what: str) -> None:
        """Do something else than ask."""
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
                    if question.event_id in self._told:  # else it may be told of twice, both times rightly
                        self._ask_again(question)
            case "flood":
                for _ in range(_FLOOD):
                    self._say(ResponseCancel(response_id="nobody"))
                self._flooded = self._dialogue if self.online.is_set() else None

    def _give_up(self) -> set[str]:
        """Return the ids of the answers that it has heard of; they are about to be erased."""
        pages = [self._ledger.pages[question.event_id] for question in self._asked]
        told = {page.response_id for page in pages if page.response_id is not None}
        self._given_up |= told
        return told

    def _ask_anew(self) -> None:
        """What was erased last is asked again: that is another question."""
        for question in self._asked[-1:]:
            if self._ledger.pages[question.event_id].response_id in self._erased:
                self._told.discard(question.event_id)
                self._anew.add(question.event_id)
                super().ask(question)

    async def _erase_elsewhere(self) -> None:
        """Erase from another device; a moment later every gateway has heard of it."""
        told, done = self._give_up(), asyncio.Event()
        dialogue = Dialogue(lambda message, _: done.set() if isinstance(message, SessionDeleted) else None, done.set)
        with suppress(ConnectFailed, TimeoutError):
            await dialogue.open(self._door()[1], SessionStart(session_id=self.session))
            dialogue.send(SessionDelete())
            async with asyncio.timeout(_HEARD_S):
                await done.wait()
            if not (dialogue.lost or kafka_ails(self._oracles.plan)):
                await asyncio.sleep(_HEARD_S)
                self._erased |= told
        dialogue.close()

    def judge(self) -> None:
        """Tell the oracles what is missing in the end."""
        if self._flooded is not None and not self._flooded.lost:
            self._oracles.breach("RATE", f"{self.session}: {_FLOOD} messages at once, and none refused")
        self._oracles.forgotten(self.session, self._erased, self._ledger.pages.values())

    def pipe(self) -> Pipe | None:
        """Return its end of the connection."""
        wire = self._dialogue._wire if self._dialogue is not None and self.online.is_set() else None
        transport: object = None if wire is None else wire._transport
        return transport if isinstance(transport, Pipe) else None

    def silence(self) -> None:
        """Be out of reach, though the socket stands."""
        self.cannot_be_reached(self._way)

    def _say(self, message: Any) -> None:
        if self._dialogue is not None and self.online.is_set():
            self._dialogue.send(message)

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        match message:
            case SessionDeleted() if self._erasing:
                self._erased |= self._erasing.pop(0)
                self._ask_anew()
            case ResponseCreated():
                page = self._ledger.pages.get(message.event_id)
                if page is not None and page.response_id in self._given_up:
                    page.response_id = None
                self._check_erased(message.response_id, "asked anew" if message.event_id in self._anew else "")
            case ResponseDelta():
                self._check_erased(message.response_id, message.delta)
            case ResponseDone():
                self._check_erased(message.response.id, message.response.output_text)
            case ErrorEvent() if "messages a minute" in message.error.message:
                self._flooded = None
                if message.event_id not in self._ledger.pages:  # a hand-off, which the ledger knows nothing of
                    return
            case HandoffCreated():
                self._oracles.handed(message.handoff_id)
        super()._hear(message, now_s)

    def _check_erased(self, response_id: str, text: str) -> None:
        """Nothing of what was told of before a confirmed erasure is told after it."""
        if response_id in self._erased and text:
            self._oracles.breach("ERASED", f"{response_id}: {text[:20]!r} was told after its erasure")
