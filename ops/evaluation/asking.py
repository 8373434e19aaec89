"""Ask questions, each in a new conversation, several at a time. They are asked of a running gateway, or of a separate
system (embedded Kafka and Redis, one gateway, one worker)."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ops.evaluation.judging.judge import Given
from ops.evaluation.judging.questions import Question, turns_of
from ops.evaluation.options import EvaluationOptions
from ops.model.embeddings import embeddings_env
from ops.stack.system import System
from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.client.telling import ConnectFailed, Refused
from shared.conversation.history import History
from shared.faq import FaqEntry
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.wire.lanes import CHAMPION
from shared.wire.messages import ResponseCreate
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey

_DEADLINE_MS: Final = 600_000
"""So long that no answer is late: its words are judged, not its time."""

Ask = Callable[[Question], Awaitable[Given]]
# Puts a question's history into its conversation before it is asked.
Remember = Callable[[str, Question], Awaitable[None]]


async def ask_all(
    questions: Sequence[Question], ask: Ask, *, clients: int, progress: Callable[[int], None] = lambda _: None
) -> list[Given]:
    """Return the answers, in the questions' order.

    Args:
        questions: the questions.
        ask: asks one of them.
        clients: how many are asked at a time.
        progress: called with the number of answers so far.

    Raises:
        ConnectFailed: no question could be asked. If only some fail, their answers are errors.
    """
    doors = asyncio.Semaphore(clients)
    failures: list[ConnectFailed] = []
    given: dict[int, Given] = {}

    async def one(at: int, question: Question) -> None:
        async with doors:
            try:
                given[at] = await ask(question)
            except ConnectFailed as error:
                failures.append(error)
                given[at] = Given(error=str(error))
            progress(len(given))

    async with asyncio.TaskGroup() as group:
        for at, question in enumerate(questions):
            group.create_task(one(at, question))
    if failures and len(failures) == len(questions):
        raise failures[0]
    return [given[at] for at in range(len(questions))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway.

    Attributes:
        url: its address.
        token: the customer's token.
        remember: puts a question's earlier turns into the conversation's history, word for word. Without it the earlier
            questions are asked first, and their answers are the system's.
        deadline_ms: the deadline of each question; None: the gateway's own.
    """

    url: str
    token: str | None = None
    remember: Remember | None = None
    deadline_ms: int | None = None

    async def ask(self, question: Question) -> Given:
        """Ask a question. Raises `ConnectFailed`."""
        session_id = f"eval-{question.id}-{secrets.token_hex(4)}"
        if self.remember is not None:
            await self.remember(session_id, question)
        async with AsyncReplyline(self.url, token=self.token, session_id=session_id, patience_s=0) as chat:
            if self.remember is None:
                for turn in question.history:
                    await _ask(chat, turn.user, self.deadline_ms)
            return await _ask(chat, question.question, self.deadline_ms)


async def _ask(chat: AsyncReplyline, text: str, deadline_ms: int | None) -> Given:
    request = ResponseCreate(
        event_id=new_event_id(), input=text, temperature=0.0, deadline_ms=deadline_ms, first_token_ms=deadline_ms
    )
    try:
        return _given(await chat.answer(request))
    except Refused as refused:
        return Given(error=refused.code)


def _given(response: Response) -> Given:
    if response.status == "failed" or not response.output_text:
        return Given(source=response.source, error=f"{response.status}/{response.reason}")
    return Given(source=response.source, text=response.output_text, grounding=response.grounding)


@asynccontextmanager
async def own_system(settings: Settings, options: EvaluationOptions, entries: Sequence[FaqEntry]) -> AsyncIterator[Ask]:
    """Start a separate system and yield the function that asks it. Raises `ServiceError`."""
    with System(settings=settings, broker="embedded", env=env_of(settings, options)) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        await system.start_worker()
        history = History(settings.redis.model_copy(update={"url": system.redis_url, "timeout_ms": 2_000}))

        async def remember(session_id: str, question: Question) -> None:
            for turn in turns_of(question, entries, name=session_id, asked_unix_ms=now_unix_ms()):
                await history.append(SessionKey(settings.tenant, session_id), turn)

        try:
            yield Gateway(url=url, remember=remember, deadline_ms=_DEADLINE_MS).ask
        finally:
            await history.close()


def env_of(settings: Settings, options: EvaluationOptions) -> dict[str, str]:
    """Return the settings of the requested variant."""
    answers = settings.answers
    env = {
        "ANSWERS__POLICY": options.policy or answers.policy,
        "ANSWERS__GUARD": str(answers.guard if options.guard is None else options.guard),
        "ANSWERS__HISTORY_TOKENS": str(answers.history_tokens),
        "PROMISE__MAX_DEADLINE_MS": str(_DEADLINE_MS),
        "REDIS__TIMEOUT_MS": "2000",
        "WORKER__ENGINE": settings.worker.engine,
        "WORKER__LANE": CHAMPION,
        "WORKER__SYSTEM_PROMPT": settings.worker.system_prompt,
        "WORKER__SLOTS": str(options.clients),
        **embeddings_env(settings),
    }
    folders = {"MODEL__DIR": options.model_dir, "FAQ__PATH": options.faq}
    return env | {name: str(path) for name, path in folders.items() if path is not None}
