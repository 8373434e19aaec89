"""Conversations through the one port, and what became of every question."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ops.client.protocol import ChatClient, ConnectFailed, new_event_id
from shared.wire.messages import ErrorEvent, ResponseCreate, ResponseCreated, ResponseDelta, ResponseDone

QUESTIONS: Final = (
    "How do I return an item?",
    "Where is my order?",
    "Can I pay by card?",
    "How long does delivery take?",
)
_DEADLINE_MS: Final = 60_000
_FIRST_TOKEN_MS: Final = 30_000
_READS_S: Final = 2.0  # the answer; a session may say a hundred things a minute
_PATIENCE_S: Final = 45.0


@dataclass(slots=True)
class Outcome:
    """`ends`: answers by who gave them. `faults`: what must not be, a line each."""

    asked: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not self.faults and self.ends.total() == self.asked


async def converse(url: str, conversations: int, enough: asyncio.Event, outcome: Outcome) -> None:
    """So many at once, each asking one question after the other, until it is `enough`; what was asked then is still
    waited for. Never raises: what fails is a fault."""
    await asyncio.gather(*(_conversation(url, number, enough, outcome) for number in range(conversations)))


async def _conversation(url: str, number: int, enough: asyncio.Event, outcome: Outcome) -> None:
    try:
        async with ChatClient(url, patience_s=_PATIENCE_S) as client:
            turn = 0
            while not enough.is_set():
                outcome.asked += 1
                await _ask(client, QUESTIONS[(number + turn) % len(QUESTIONS)], f"{number}.{turn}", outcome)
                turn += 1
                await asyncio.sleep(_READS_S)
    except ConnectFailed as error:
        outcome.faults.append(f"conversation {number}: {error}")


async def _ask(client: ChatClient, question: str, name: str, outcome: Outcome) -> None:
    """One terminal event, and the deltas' text is the answer's."""
    heard: list[str] = []
    ends: list[ResponseDone] = []
    request = ResponseCreate(
        event_id=new_event_id(), input=question, deadline_ms=_DEADLINE_MS, first_token_ms=_FIRST_TOKEN_MS
    )
    async for event in client.ask(request):
        match event:
            case ResponseCreated():
                heard.clear()
            case ResponseDelta():
                heard.append(event.delta)
            case ResponseDone():
                ends.append(event)
            case ErrorEvent():
                outcome.faults.append(f"question {name}: {event.error.code}: {event.error.message}")
    outcome.faults.extend(faults_of(name, "".join(heard), [end.response.output_text for end in ends]))
    outcome.ends.update(end.response.source for end in ends)


def faults_of(name: str, heard: str, texts: Iterable[str]) -> list[str]:
    """What is wrong with an answer whose deltas were `heard` and whose terminal events hold `texts`."""
    match list(texts):
        case []:
            return [f"question {name}: no terminal event"]
        case [text] if text == heard:
            return []
        case [text]:
            return [f"question {name}: {len(heard)} characters heard, {len(text)} said"]
        case several:
            return [f"question {name}: {len(several)} terminal events"]
