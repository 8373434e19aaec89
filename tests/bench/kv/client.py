"""Conversations with a gateway: each over its own connection, a turn when the previous one is answered."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.wire.messages import ResponseCreate, ResponseDelta, ResponseDone
from shared.wire.outcome import BY_MODEL
from tests.bench.cell import FAILED, Figures, middle
from tests.bench.kv.conversations import Conversation

DEADLINE_MS: Final = 600_000
"""Nothing is cut, so that every system does the same work."""


@dataclass(slots=True, kw_only=True)
class Answered:
    """One turn, as its client saw it; `prefill_ms` as the worker did. `by_model`: it wrote to its end, or as far as was
    asked."""

    ttft_ms: float | None = None
    prefill_ms: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    by_model: bool = False
    text: str = ""


class Talk:
    """One conversation. Use as an async context manager; opening it raises `ConnectFailed`."""

    def __init__(self, url: str, conversation: Conversation) -> None:
        self.conversation = conversation
        self._client = AsyncReplyline(url, patience_s=0)

    @property
    def session_id(self) -> str:
        """The gateway's name for the conversation, once it is open."""
        assert self._client.session is not None
        return self._client.session.session_id

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def ask(self, turn: int, max_output_tokens: int) -> Answered:
        """Ask the conversation's turn (from 1), greedily. Raises `ConnectFailed`."""
        answer, question = Answered(), self.conversation.turns[turn - 1]
        request = ResponseCreate(
            event_id=new_event_id(), input=question, max_output_tokens=max_output_tokens, temperature=0.0
        )
        asked_s = time.monotonic()
        async for event in self._client.ask(request):
            if isinstance(event, ResponseDelta | ResponseDone) and answer.ttft_ms is None:
                answer.ttft_ms = (time.monotonic() - asked_s) * 1_000
            if isinstance(event, ResponseDone):
                response = event.response
                answer.prefill_ms, answer.text = response.timings.prefill_ms, response.output_text
                answer.prompt_tokens, answer.cached_tokens = response.usage.input_tokens, response.usage.cached_tokens
                answer.output_tokens = response.usage.output_tokens
                answer.by_model = response.source in BY_MODEL and response.reason in {"stop", "max_output_tokens"}
        return answer


@dataclass(slots=True, kw_only=True)
class Conversed:
    """All conversations of a run: their turns, and how long it took from the first question to the last answer.
    `sessions`: of each conversation with a gateway, by its id."""

    elapsed_s: float = 0.0
    answers: list[Answered] = field(default_factory=list)
    sessions: dict[str, str] = field(default_factory=dict)

    def figures(self) -> Figures:
        """Failed are answers that are not the model's to their end, or as far as was asked."""
        by_model = [answer for answer in self.answers if answer.by_model]
        return {
            "answers_per_s": round(len(by_model) / self.elapsed_s, 4) if self.elapsed_s else None,
            "ttft_p50_ms": middle(answer.ttft_ms for answer in by_model),
            "prompt_tokens": sum(answer.prompt_tokens for answer in self.answers),
            "computed_tokens": sum(answer.prompt_tokens - answer.cached_tokens for answer in self.answers),
            "output_tokens": sum(answer.output_tokens for answer in by_model),
            FAILED: len(self.answers) - len(by_model),
        }


Converse = Callable[[Conversation, Callable[[Answered], None]], Awaitable[None]]
"""Run one conversation from its first turn; each answer is reported."""


async def converse_all(
    url: str, conversations: Sequence[Conversation], *, clients: int, max_output_tokens: int
) -> Conversed:
    """Run `clients` conversations in parallel, each complete. Raises `ConnectFailed`."""
    sessions: dict[str, str] = {}

    async def converse(conversation: Conversation, told: Callable[[Answered], None]) -> None:
        async with Talk(url, conversation) as talk:
            sessions[conversation.id] = talk.session_id
            for turn in range(1, len(conversation.turns) + 1):
                told(await talk.ask(turn, max_output_tokens))

    done = await at_once(conversations, converse, clients=clients)
    done.sessions = sessions
    return done


async def at_once(conversations: Sequence[Conversation], converse: Converse, *, clients: int) -> Conversed:
    """Run `clients` of them in parallel, the next when one ends, the longest first."""
    left = deque(sorted(conversations, key=lambda one: -len(one.turns)))
    done = Conversed()

    async def client() -> None:
        while left:
            await converse(left.popleft(), done.answers.append)

    start_s = time.monotonic()
    tasks = [asyncio.create_task(client()) for _ in range(min(clients, len(conversations)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    done.elapsed_s = time.monotonic() - start_s
    return done
