"""The engine alone is asked: what a worker is made of, in this process, without Kafka, Redis and a gateway."""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, cast

from ops.evaluation.asking import DEADLINE_MS, Ask, given_of, session_name
from ops.evaluation.judging.judge import Given
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.turns import turns_of
from ops.evaluation.own_system import Variant
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.faq import FaqEntry
from shared.faq.embedder import Embedder
from shared.faq.live import LiveFaq
from shared.process.clock import now_unix_ms
from shared.records.offsets import OffsetTracker
from shared.records.requests import Defaults, settle
from shared.settings import Settings
from shared.wire.messages import ChatRequest, ReplyDelta, ReplyDone
from workers.building import make_preparer, make_scheduler
from workers.loading import LoadedModel, load_model
from workers.request.job import target_of
from workers.request.reply_publisher import ReplyPublisher, Target
from workers.serving.calibration import costs_key, load_or_calibrate
from workers.serving.kept_lengths import KeptLengths
from workers.serving.worker import Worker


class _Replies:
    """In the place of the publisher: whoever asked hears the end of its answer."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[ReplyDone]] = {}

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        """The terminal event has the whole text."""

    def done(self, target: Target, done: ReplyDone) -> None:
        del target
        self.waiting[done.request_id].set_result(done)


class _Memory:
    """In the place of Redis."""

    def __init__(self) -> None:
        self.said: defaultdict[str, list[Turn]] = defaultdict(list)

    async def turns(
        self, tenant: str, session_id: str, *, limit: int, before_unix_ms: float, **_: object
    ) -> list[Turn]:
        del tenant
        return [turn for turn in self.said[session_id] if turn.asked_unix_ms < before_unix_ms][-limit:] if limit else []

    def remember(self, tenant: str, session_id: str, turn: Turn) -> None:
        del tenant
        self.said[session_id].append(turn)


def as_set(settings: Settings, variant: Variant, clients: int) -> Settings:
    """The settings of a variant."""
    answers = {"policy": variant.policy, "guard": variant.guard}
    worker = {"slots": clients, "grounding_entries": variant.grounding_entries}
    groups = {
        "answers": settings.answers.model_copy(update=_given(answers)),
        "worker": settings.worker.model_copy(update=_given(worker)),
        "model": settings.model.model_copy(update=_given({"dir": variant.model_dir})),
        "faq": settings.faq.model_copy(update=_given({"path": variant.faq})),
        "kv": settings.kv.model_copy(update={"enabled": False}),
        "promise": settings.promise.model_copy(update={"max_deadline_ms": DEADLINE_MS}),
    }
    return settings.model_copy(update=groups)


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


@asynccontextmanager
async def engine_alone(
    settings: Settings, variant: Variant, *, clients: int, entries: Sequence[FaqEntry]
) -> AsyncIterator[Ask]:
    """What it is asked by. Raises `ModelError`, `SettingsError`."""
    chosen = as_set(settings, variant, clients)
    model = await asyncio.to_thread(load_model, chosen)
    try:
        async with EngineAlone(chosen, model, entries) as alone:
            yield alone.ask
    finally:
        model.engine.close()


class EngineAlone:
    """A worker's parts. Use as an async context manager."""

    def __init__(self, settings: Settings, model: LoadedModel, entries: Sequence[FaqEntry]) -> None:
        info, costs_dir = model.engine.info, settings.worker.costs_dir
        kept = None if info.name == "fake" else costs_dir / f"{info.name}-{info.model}-{info.num_slots}.json"
        key = costs_key(info, threads=settings.worker.threads or os.cpu_count() or 1)
        costs, _ = load_or_calibrate(kept, key, model.engine)
        self._replies = _Replies()
        self._memory = _Memory()
        # Of both the worker uses no more than these have.
        history = cast("History", self._memory)
        self._worker = Worker(
            engine=model.engine,
            scheduler=make_scheduler(settings, info, costs, KeptLengths(None, info).lengths),
            costs=costs,
            publisher=cast("ReplyPublisher", self._replies),
            history=history,
            offsets=OffsetTracker(),
            topics=settings.kafka.topics,
            max_waiting=settings.worker.max_waiting,
            reply_interval_s=settings.worker.reply_interval_ms / 1_000,
        )
        self._preparer = make_preparer(
            settings,
            model,
            faq=LiveFaq(settings.faq, embed=Embedder.named_by(settings.faq)),
            history=history,
            kv=None,
            standing=self._worker.engine_loop.standing,
        )
        self._defaults = Defaults.of(settings)
        self._entries = entries
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None, "left before it was entered"
        self._worker.engine_loop.stop()
        with suppress(asyncio.CancelledError):
            await self._running

    async def ask(self, question: Question) -> Given:
        """Raises `EngineError` when the engine keeps failing."""
        name, now = session_name(question), now_unix_ms()
        self._memory.said[name] = turns_of(question, self._entries, name=name, asked_unix_ms=now)
        request = ChatRequest(
            id=name,
            session_id=name,
            input=question.question,
            temperature=0.0,
            deadline_unix_ms=int(now) + DEADLINE_MS,
            first_token_unix_ms=int(now) + DEADLINE_MS,
        )
        try:
            job = await self._preparer.prepare(settle(request, self._defaults, now), now)
        except ProtocolError as error:
            return Given(error=error.code)
        if isinstance(job, ReplyDone):
            return given_of(job)
        answered = self._replies.waiting[name] = asyncio.get_running_loop().create_future()
        self._worker.accept(job)
        done = await self._first(answered)
        self._worker.settled(target_of(job.order), done)
        return given_of(done)

    async def _first(self, answered: asyncio.Future[ReplyDone]) -> ReplyDone:
        """The answer, unless the engine ends before it."""
        assert self._running is not None, "asked before it was entered"
        ends: set[asyncio.Future[Any]] = {answered, self._running}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            await self._running
        return await answered
