"""A whole system of its own that is asked: embedded Kafka and Redis, one gateway, one worker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.evaluation.asking import DEADLINE_MS, Ask, Gateway, Remember
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.turns import turns_of
from ops.load.system import System
from ops.model.embeddings import embeddings_env
from shared.conversation.history import History
from shared.faq import FaqEntry
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.settings.answers import AnswerPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is asked: a model's folder and how its answers are made. None is as it is set."""

    model_dir: Path | None = None
    policy: AnswerPolicy | None = None
    guard: bool | None = None
    faq: Path | None = None


@asynccontextmanager
async def own_system(
    settings: Settings, variant: Variant, *, clients: int, entries: Sequence[FaqEntry]
) -> AsyncIterator[Ask]:
    """What it is asked by. Raises `ServiceError`."""
    with System(settings=settings, broker="embedded", env=env_of(settings, variant, clients)) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        await system.start_worker()
        history = History(settings.redis.model_copy(update={"url": system.redis_url, "timeout_ms": 2_000}))
        try:
            yield Gateway(url=url, remember=_remember_in(history, settings.tenant, entries)).ask
        finally:
            await history.close()


def env_of(settings: Settings, variant: Variant, clients: int) -> dict[str, str]:
    """The settings of a variant."""
    answers = settings.answers
    env = {
        "ANSWERS__POLICY": variant.policy or answers.policy,
        "ANSWERS__GUARD": str(answers.guard if variant.guard is None else variant.guard),
        "ANSWERS__HISTORY_TOKENS": str(answers.history_tokens),
        "PROMISE__MAX_DEADLINE_MS": str(DEADLINE_MS),
        "REDIS__TIMEOUT_MS": "2000",
        "WORKER__SLOTS": str(clients),
        **embeddings_env(settings),
    }
    if variant.model_dir is not None:
        env["MODEL__DIR"] = str(variant.model_dir)
    if variant.faq is not None:
        env["FAQ__PATH"] = str(variant.faq)
    return env


def _remember_in(history: History, tenant: str, entries: Sequence[FaqEntry]) -> Remember:
    async def remember(session_id: str, question: Question) -> None:
        for turn in turns_of(question, entries, name=session_id, asked_unix_ms=now_unix_ms()):
            await history.append(tenant, session_id, turn)

    return remember
