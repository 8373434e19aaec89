"""Questions asked, each in a conversation of its own, some at a time; and how a gateway is asked."""

import secrets
from asyncio import TaskGroup
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ops.client.protocol import ChatClient, ConnectFailed, new_event_id
from ops.evaluation.judging.judge import Given
from ops.evaluation.judging.questions import Question
from shared.wire.messages import ErrorEvent, Response, ResponseCreate, ResponseDone

DEADLINE_MS: Final = 600_000
"""What is judged is what is said, not when: a gateway that allows less time applies its own limit."""

Ask = Callable[[Question], Awaitable[Given]]
# Puts a question's history into its conversation before it is asked.
Remember = Callable[[str, Question], Awaitable[None]]


async def ask_all(
    questions: Sequence[Question], ask: Ask, *, clients: int, progress: Callable[[int], None] = lambda _: None
) -> list[Given]:
    """The answers, in the questions' order; `clients` at a time.

    A question whose connection ends has an error for its answer; raises `ConnectFailed` where none can be asked.
    """
    left = deque(enumerate(questions))
    given: dict[int, Given] = {}
    failures: list[ConnectFailed] = []

    async def client() -> None:
        while left:
            at, question = left.popleft()
            try:
                given[at] = await ask(question)
            except ConnectFailed as error:
                failures.append(error)
                given[at] = Given(error=str(error))
            progress(len(given))

    async with TaskGroup() as group:
        for _ in range(min(clients, len(questions))):
            group.create_task(client())
    if failures and len(failures) == len(questions):
        raise failures[0]
    return [given[at] for at in range(len(questions))]


def _given(response: Response) -> Given:
    if response.status == "failed" or not response.output_text:
        return Given(source=response.source, error=f"{response.status}/{response.reason}")
    return Given(
        source=response.source,
        text=response.output_text,
        grounding=response.grounding,
        replaced=response.replaced,
        output_tokens=response.usage.output_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One that runs. An earlier turn is put into the conversation's history by `remember`, word for word as the
    question has it; where that is None the earlier question is asked first, and its answer is whatever it is."""

    url: str
    token: str | None = None
    remember: Remember | None = None

    async def ask(self, question: Question) -> Given:
        """Raises `ConnectFailed`."""
        session_id = f"eval-{question.id}-{secrets.token_hex(4)}"
        if self.remember is not None:
            await self.remember(session_id, question)
        async with ChatClient(self.url, token=self.token, session_id=session_id) as chat:
            if self.remember is None:
                for turn in question.history:
                    await _ask(chat, turn.user)
            return await _ask(chat, question.question)


async def _ask(chat: ChatClient, text: str) -> Given:
    request = ResponseCreate(
        event_id=new_event_id(), input=text, temperature=0.0, deadline_ms=DEADLINE_MS, first_token_ms=DEADLINE_MS
    )
    async for event in chat.ask(request):
        if isinstance(event, ErrorEvent):
            return Given(error=event.error.code)
        if isinstance(event, ResponseDone):
            return _given(event.response)
    return Given(error="connection_lost")
