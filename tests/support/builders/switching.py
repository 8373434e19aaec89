"""A worker that switches between versions of the fake engine, on one in-memory Redis, and its clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest

from shared.conversation.turn import Turn
from shared.faq import FaqIndex
from shared.faq.in_step import Freshness
from shared.process.clock import now_unix_ms
from shared.process.tasks import Tasks
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.versions.registry import Registry
from shared.versions.state import Move, State
from shared.wire.lanes import Lane
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.session_key import SessionKey
from tests.support.builders.worker import TOPICS, FakePublisher, order
from tests.support.fakes.kv_workers import Redis, Store
from workers.engine.fake import FakeEngine
from workers.engine.greedy import answer_greedily
from workers.engine.load_model import load_model
from workers.kv import cache as opening
from workers.request.job import Job
from workers.request.open_answers import OpenAnswers
from workers.request.reply_publisher import Settled
from workers.schedule.costs import CostModel
from workers.serving.loaded_versions import LoadedVersions
from workers.serving.worker import Worker
from workers.versions.candidate import Candidate, open_candidate
from workers.versions.loader import VersionLoader
from workers.versions.switcher import Means, Switcher

OUTPUT_TOKENS: Final = 12
SETTINGS: Final = Settings.model_validate(
    {
        "worker": {
            "engine": "fake",
            "slots": 3,
            "max_length": 512,
            "fake_decode_ms_per_step": 0.5,
            "system_prompt": "S",
        },
        "answers": {"policy": "model", "guard": False},
        "limits": {"default_output_tokens": OUTPUT_TOKENS},
        "promise": dict.fromkeys(("first_token_ms", "deadline_ms", "max_deadline_ms"), 60_000),
    }
)


class Publisher(FakePublisher):
    """A publisher that acknowledges each end immediately."""

    def done(self, target: Any, done: ReplyDone, settled: Settled) -> None:
        self.said.append(done)
        settled()


@dataclass
class Histories:
    turns_of: dict[SessionKey, list[Turn]] = field(default_factory=dict)

    async def turns(self, session: SessionKey, **_: object) -> list[Turn]:
        return list(self.turns_of.get(session, ()))

    def remember(self, session: SessionKey, turn: Turn, *, journal: bool = True) -> None:
        self.turns_of.setdefault(session, []).append(turn)


@dataclass
class Switching:
    """`rehearsed` may refuse a version, or hold it up. `kept_ms` as the switcher's."""

    lane: Lane = "champion"
    kept_ms: float = 60_000.0
    rehearsed: Callable[[Candidate], Any] | None = None
    opened: Callable[[str | None], Candidate] | None = None
    jobs: list[Job] = field(default_factory=list)
    remembered: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.publisher, self.tasks, self.versions = Publisher(), Tasks(), LoadedVersions()
        publisher, history, faq = (_any(each) for each in (self.publisher, Histories(), _NoFaq()))
        self.answers = OpenAnswers(publisher=publisher, offsets=OffsetTracker(), replies=TOPICS.replies)
        self.worker = Worker(
            versions=self.versions, answers=self.answers, history=history, replies=TOPICS.replies, max_waiting=64
        )
        self.loader = VersionLoader(faq=faq, history=history, worker=self.worker, tasks=self.tasks)
        self.registry = Registry()
        known = asyncio.Event()
        known.set()
        self.switcher = Switcher(
            lane=self.lane,
            log=_any(SimpleNamespace(registry=self.registry, known=known)),
            versions=self.versions,
            means=Means(
                open=self._open,
                rehearse=self._rehearse,
                load=self.loader.load_beside,
                close=self.loader.close,
                answering=lambda: {job.revision for job in self.answers.jobs},
                remember=self.remembered.append,
            ),
            hangup=asyncio.Event(),
            kept_ms=self.kept_ms,
        )

    def _open(self, revision: str | None) -> Candidate:
        return self.opened(revision) if self.opened is not None else open_candidate(SETTINGS, revision, verify=False)

    async def _rehearse(self, candidate: Candidate) -> str | None:
        return None if self.rehearsed is None else await self.rehearsed(candidate)

    def move(self, champion: str, *, loading: str | None = None, **others: str) -> None:
        """Write the registry's next state. `others` are the other aliases."""
        state = State(
            epoch=self.registry.state.epoch + 1,
            aliases=_any({"champion": champion} | others),
            loading={} if loading is None else {"champion": loading},
        )
        self.registry.apply(Move(state=state, author="a", reason="r", unix_ms=0))
        self.switcher.changed()

    async def ask(self, session: str, number: int, *, revision: str | None = None, epoch: int | None = None) -> Job:
        """Ask a conversation's next question, and wait for the end of its answer."""
        now = now_unix_ms()
        asked = order(
            f"{session}-{number}",
            now=now,
            defaults=SETTINGS.request_defaults,
            session_id=session,
            input=f"{session} asks {number}?",
            revision=revision,
            epoch=epoch,
        )
        served = self.versions.for_request(revision, epoch) or self.versions.serving
        with served.preparing():
            job = await served.prepare(asked, now)
            assert isinstance(job, Job)
            self.jobs.append(job)
            self.worker.accept(job)
        await self.until(lambda: job.done is not None)
        return job

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 - no event signals the condition
            await asyncio.sleep(0.001)

    def deltas(self, job: Job) -> set[str]:
        """The revisions that an answer's deltas name."""
        return {
            said.revision for said in self.publisher.said if isinstance(said, ReplyDelta) and said.request_id == job.id
        }


@asynccontextmanager
async def switching(monkeypatch: pytest.MonkeyPatch, **how: Any) -> AsyncIterator[Switching]:
    """A worker that serves `v1`, by a registry's alias."""
    redis = Redis()
    monkeypatch.setattr(opening, "KvStore", lambda *_, **__: Store(redis))
    bench = Switching(**how)
    candidate = open_candidate(SETTINGS, "v1", verify=False)
    first = bench.loader.made(candidate.settings, "v1", load_model(candidate.settings), CostModel.prior())
    bench.versions.add(first)
    bench.versions.serve("v1")
    bench.loader.start(first)
    bench.move("v1")
    bench.tasks.start(bench.switcher.run(), "switcher")
    async with asyncio.timeout(60):
        try:
            yield bench
        finally:
            await bench.tasks.cancel()
            for served in bench.versions:
                served.close()


def own_tokens(job: Job) -> list[int]:
    """Return the tokens that the version named in an answer generates for its prompt alone."""
    engine = FakeEngine(num_slots=1, max_length=512, revision=job.revision)
    return answer_greedily(engine, [list(job.sequence.prompt_ids)], OUTPUT_TOKENS)[0]


class _NoFaq:
    index = FaqIndex([])
    freshness = Freshness(0.0)

    async def vector_of(self, _: str) -> None:
        return None


def _any(value: object) -> Any:
    return value
