"""A worker whose model says "a" without end, stepped by hand, and what it is asked."""

from dataclasses import dataclass, field
from typing import Any

from shared.conversation.turn import Turn
from shared.faq.fallback import Fallback
from shared.model.tokenizer import Tokenizer
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.wire.messages import ChatRequest, Grounding, Reply, ReplyDelta, ReplyDone
from shared.wire.requests import Defaults, settle
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames
from tests.support.hostile.saboteur import Saboteur
from workers.answer.stream import Answer
from workers.engine import Sampling
from workers.engine.fake import FakeEngine
from workers.prompt.conversation import Prompt
from workers.request.job import Job
from workers.request.reply_publisher import Target
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import build_scheduler
from workers.schedule.scheduler import SchedulerLimits
from workers.schedule.sequence import Sequence
from workers.serving.engine_loop import EngineLoop
from workers.serving.worker import Worker
from workers.telemetry.tracer import Tracer

TOKENIZER = Tokenizer.byte_level()
TOPIC: Partition = ("chat.requests.short", 0)
LETTER_A = 3 + ord("a")


@dataclass
class FakePublisher:
    """As slow as can be: what is not acknowledged yet is still to leave, so a terminal event that is said again joins
    the first."""

    said: list[Reply] = field(default_factory=list)
    by_target: dict[Target, list[Reply]] = field(default_factory=dict)
    waiting: dict[tuple[Target, str], ReplyDone] = field(default_factory=dict)
    forgotten: list[tuple[Target, str]] = field(default_factory=list)

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        self.said.append(delta)
        self.by_target.setdefault(target, []).append(delta)

    def forget(self, target: Target, request_id: str) -> None:
        self.forgotten.append((target, request_id))

    def done(self, target: Target, done: ReplyDone) -> None:
        if (target, done.request_id) in self.waiting:
            return
        self.waiting[target, done.request_id] = done
        self.said.append(done)
        self.by_target.setdefault(target, []).append(done)


@dataclass
class FakeHistory:
    turns: list[Turn] = field(default_factory=list)

    forgotten: list[tuple[SessionKey, int]] = field(default_factory=list)

    def remember(self, session: SessionKey, turn: Turn) -> None:
        self.turns.append(turn)

    def forget(self, session: SessionKey, generation: int) -> None:
        self.forgotten.append((session, generation))


@dataclass
class Bench:
    """A worker whose model says "a" without end, stepped by hand."""

    publisher: FakePublisher = field(default_factory=FakePublisher)
    history: FakeHistory = field(default_factory=FakeHistory)
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    interval_s: float = 0.0
    saboteur: Saboteur = field(default_factory=Saboteur)
    engine: FakeEngine = field(default_factory=lambda: FakeEngine(num_slots=2, max_length=64, vocabulary=(LETTER_A,)))
    reuse_kv: bool = False
    worker: Worker = field(init=False)
    engine_loop: EngineLoop = field(init=False)

    def __post_init__(self) -> None:
        info = self.engine.info
        limits = SchedulerLimits(
            num_slots=info.num_slots,
            prefill_chunk_tokens=16,
            max_prefill_rows=2,
            stop_token_ids=info.stop_token_ids,
            reuse_kv=self.reuse_kv,
        )
        costs = CostModel.prior()
        before = self.saboteur.before
        fakes: dict[str, Any] = {"publisher": before(self.publisher), "history": before(self.history)}
        self.worker = Worker(
            engine=before(self.engine),
            scheduler=before(build_scheduler(limits=limits, costs=costs, lengths=OutputLengths())),
            costs=before(costs),
            offsets=self.offsets,
            topics=TopicNames(),
            max_waiting=4,
            reply_interval_s=self.interval_s,
            tracer=before(Tracer()),
            **fakes,
        )
        self.engine_loop = self.worker.engine_loop
        self.engine_loop.tell = self.worker.hear

    def accept(
        self,
        offset: int,
        *,
        output: int = 3,
        stops: tuple[str, ...] = (),
        generation: int | None = None,
        created_unix_ms: int | None = None,
    ) -> Job:
        request = ChatRequest(
            id=f"r{offset}",
            session_id="s",
            input="hi",
            reply_topic="chat.replies",
            generation=generation,
            created_unix_ms=created_unix_ms,
        )
        now = now_unix_ms()
        order = settle(request, DEFAULTS, now)
        job = Job(
            order=order,
            bucket="short",
            sequence=Sequence(
                request_id=request.id,
                prompt_ids=[5, 6, 7],
                max_output_tokens=output,
                sampling=Sampling(),
                deadline=order.deadline,
                arrived_unix_ms=now,
            ),
            answer=self.saboteur.before(
                Answer(request_id=request.id, session_id="s", attempt=1, token_bytes=TOKENIZER.token_bytes, stops=stops)
            ),
            prompt=Prompt(ids=[5, 6, 7], shared_tokens=0),
            fallback=Fallback(source="busy", text="busy", language="en"),
            origins=[(TOPIC, offset)],
        )
        self.offsets.begin(TOPIC, offset)
        self.worker.accept(job)
        return job

    def step(self) -> bool:
        """One step as the engine's thread makes it; False when there is nothing left to compute."""
        return self.engine_loop.turn()

    def run(self) -> None:
        while self.step():
            pass

    def acknowledge(self, *, request_id: str | None = None, target: Target | None = None) -> None:
        """Terminal events reach their readers: all, or those of one request or target."""
        for (there, name), done in list(self.publisher.waiting.items()):
            if request_id in {None, name} and target in {None, there}:
                del self.publisher.waiting[there, name]
                self.worker.settled(there, done)

    def erase(self, session_id: str = "s") -> int:
        """Its conversation is erased; the generation that has begun."""
        generation = int(now_unix_ms()) + 1
        self.worker.erase(SessionKey("demo", session_id), generation)
        return generation

    def deltas(self) -> list[str]:
        return [reply.delta for reply in self.publisher.said if isinstance(reply, ReplyDelta)]

    def ends(self) -> list[ReplyDone]:
        return [reply for reply in self.publisher.said if isinstance(reply, ReplyDone)]


DEFAULTS = Defaults(
    tenant="demo",
    output_tokens=16,
    max_output_tokens=16,
    first_token_ms=60_000,
    deadline_ms=60_000,
    max_deadline_ms=60_000,
    reply_topic="chat.replies.external",
    reply_topics=("chat.replies*",),
)


QUOTED = Fallback(
    source="faq",
    text="Soon.",
    language="en",
    grounding=(Grounding(id="when", question="When?", answer="Soon."),),
)


def decided(bench: Bench, offset: int = 0, *, cancelled: bool = False, **request: Any) -> Job:
    """A request that the FAQ answers; `accept` has it."""
    fields = {"id": f"r{offset}", "session_id": "s", "input": "hi", "reply_topic": "chat.replies"} | request
    order = settle(ChatRequest(**fields), DEFAULTS, now_unix_ms())
    job = Job(
        order=order,
        bucket="short",
        sequence=Sequence(
            request_id=order.request.id,
            prompt_ids=[],
            max_output_tokens=3,
            sampling=Sampling(),
            deadline=order.deadline,
            arrived_unix_ms=now_unix_ms(),
        ),
        answer=Answer(
            request_id=order.request.id, session_id="s", attempt=1, token_bytes=TOKENIZER.token_bytes, stops=()
        ),
        prompt=Prompt(ids=[], shared_tokens=0),
        fallback=QUOTED,
        decided=True,
        origins=[(TOPIC, offset)],
    )
    bench.offsets.begin(TOPIC, offset)
    bench.worker.accept(job, cancelled=cancelled)
    return job
