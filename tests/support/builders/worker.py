"""A worker's parts: sequences, costs, orders, jobs; a worker stepped by hand, and an intake that is fed so."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Any, Final

from shared.conversation.turn import Turn
from shared.faq.fallback import Fallback
from shared.model.chat_template import ChatTemplate
from shared.model.folder import CHATML
from shared.model.tokenizer import Tokenizer
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket, ChatRequest, Erase, Reply, ReplyDelta, ReplyDone
from shared.wire.outcome import Grounding
from shared.wire.requests import Defaults, Order, Target, settle
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames
from tests.support.hostile.saboteur import Saboteur
from workers.answer.stream import Answer
from workers.engine import Sampling
from workers.engine.fake import FakeEngine
from workers.engine.load_model import LoadedModel
from workers.prompt.conversation import BuildPrompt, Prompt
from workers.request.job import Job
from workers.request.open_answers import OpenAnswers
from workers.request.reply_publisher import Settled
from workers.schedule.costs import CostModel
from workers.schedule.goodput import build_scheduler
from workers.schedule.lengths import OutputLengths
from workers.schedule.scheduler import SchedulerLimits
from workers.schedule.sequence import Sequence
from workers.schedule.work import Work
from workers.serving.centre import CentreClient
from workers.serving.drafts import Drafts, Progress
from workers.serving.engine_loop import EngineLoop, StepWatch
from workers.serving.engine_step import keep_nothing
from workers.serving.loaded_versions import LoadedVersions, ServedVersion
from workers.serving.shadow import Shadow
from workers.serving.worker import Worker
from workers.telemetry.tracer import Tracer

NEVER = Deadline(first_token_unix_ms=2**50, deadline_unix_ms=2**50)
NOW = 1_790_000_000_000.0
REVISION = "v1"
TOPICS = TopicNames()
SHORT, LONG = TOPICS.requests("short"), TOPICS.requests("long")
TOPIC: Partition = (SHORT, 0)
LETTER_A = 3 + ord("a")
QUOTED = Fallback(
    source="faq",
    text="Soon.",
    language="en",
    grounding=(Grounding(id="when", question="When?", answer="Soon."),),
)
_BUSY = Fallback(source="busy", text="busy", language="en")
_TOKENIZER: Final = Tokenizer.byte_level()
_SLOW: Final = dict.fromkeys(("first_token_ms", "deadline_ms", "max_deadline_ms"), 60_000)
DEFAULTS: Final = Settings.model_validate({"promise": _SLOW}).request_defaults


def sequence(
    name: str = "r",
    ids: Tokens[int] = (1, 2, 3),
    *,
    output: int = 5,
    deadline: Deadline = NEVER,
    tenant: str = "t",
    session: str = "a",
    arrived_unix_ms: float = 0,
    bucket: Bucket = "short",
    generation: int = 0,
    shared_tokens: int = 0,
    held: bool = False,
    **state: Any,
) -> Sequence:
    """Return a sequence; `state`: how far it is computed."""
    made = Sequence(
        request_id=name,
        prompt_ids=ids,
        max_output_tokens=output,
        sampling=Sampling(),
        deadline=deadline,
        arrived_unix_ms=arrived_unix_ms,
        bucket=bucket,
        session=SessionKey(tenant, session),
        generation=generation,
        shared_tokens=shared_tokens,
        held=held,
    )
    for field_name, value in state.items():
        setattr(made, field_name, value)
    return made


@dataclass(frozen=True)
class LinearCosts:
    """A prompt token takes `token_ms`; a decode step `step_ms`, and `row_ms` for each row."""

    token_ms: float = 0.01
    step_ms: float = 0.1
    row_ms: float = 0.0

    def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float:
        return self.token_ms * tokens

    def decode_ms(self, rows: int, context: int) -> float:
        return self.step_ms + self.row_ms * rows

    def ms(self, work: Work) -> float:
        decode_ms = self.decode_ms(work.rows, work.context) if work.rows else 0.0
        return decode_ms + self.prefill_ms(work.tokens, past=work.past)


def order(name: str = "r", *, now: float = NOW, defaults: Defaults | None = None, **fields: Any) -> Order:
    """A gateway's request, as a worker settles it."""
    given = {"id": name, "session_id": "s", "input": "hi", "reply_topic": "chat.replies"} | fields
    return settle(ChatRequest(**given), defaults or Settings().request_defaults, now)


def answer(name: str, **fields: Any) -> Answer:
    given = {
        "session_id": "s",
        "attempt": 1,
        "token_bytes": _TOKENIZER.token_bytes,
        "stops": (),
        "revision": REVISION,
    } | fields
    return Answer(request_id=name, **given)


def job(offset: int, *, output: int = 3, stops: tuple[str, ...] = (), decided: bool = False, **request: Any) -> Job:
    """The request of that record, made just now. `decided`: the FAQ answers it."""
    now = now_unix_ms()
    settled = order(f"r{offset}", now=now, defaults=DEFAULTS, **request)
    ids = [] if decided else [5, 6, 7]
    return Job(
        order=settled,
        bucket="short",
        sequence=sequence(
            settled.request.id,
            ids,
            output=output,
            deadline=settled.deadline,
            tenant=settled.tenant,
            session=settled.request.session_id,
            arrived_unix_ms=now,
        ),
        answer=answer(settled.request.id, stops=stops),
        prompt=Prompt(ids=ids, shared_tokens=0),
        fallback=QUOTED if decided else _BUSY,
        decided=decided,
        origins=[(TOPIC, offset)],
    )


@dataclass
class FakePublisher:
    """A publisher of maximal delay: an unacknowledged end is still pending, so a repeated terminal event joins the
    first."""

    said: list[Reply] = field(default_factory=list)
    by_target: dict[Target, list[Reply]] = field(default_factory=dict)
    waiting: dict[tuple[Target, str], list[Settled]] = field(default_factory=dict)
    forgotten: list[tuple[Target, str]] = field(default_factory=list)

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        self.said.append(delta)
        self.by_target.setdefault(target, []).append(delta)

    def forget(self, target: Target, request_id: str) -> None:
        self.forgotten.append((target, request_id))

    def done(self, target: Target, done: ReplyDone, settled: Settled) -> None:
        waiting = self.waiting.setdefault((target, done.request_id), [])
        waiting.append(settled)
        if len(waiting) == 1:
            self.said.append(done)
            self.by_target.setdefault(target, []).append(done)


@dataclass
class FakeHistory:
    turns: list[Turn] = field(default_factory=list)
    forgotten: list[tuple[SessionKey, int]] = field(default_factory=list)

    def remember(self, session: SessionKey, turn: Turn, *, journal: bool = True) -> None:
        self.turns.append(turn)

    def forget(self, session: SessionKey, generation: int) -> None:
        self.forgotten.append((session, generation))


@dataclass
class FakePrompts:
    """Builds no prompts: each job of these tests has its prompt."""

    forgotten: list[SessionKey] = field(default_factory=list)

    def of(self, session: SessionKey) -> BuildPrompt:
        raise AssertionError(f"asked for {session}'s")

    def forget(self, session: SessionKey) -> None:
        self.forgotten.append(session)


async def prepares_nothing(order: Order, now_unix_ms: float) -> Job:
    """Fail: each job of these tests is already prepared."""
    raise AssertionError(f"asked for {order.request.id} at {now_unix_ms}")


@dataclass
class Bench:
    """A worker whose model generates "a" without end, stepped by hand."""

    publisher: FakePublisher = field(default_factory=FakePublisher)
    history: FakeHistory = field(default_factory=FakeHistory)
    prompts: FakePrompts = field(default_factory=FakePrompts)
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    interval_s: float = 0.0
    saboteur: Saboteur = field(default_factory=Saboteur)
    engine: FakeEngine = field(default_factory=lambda: FakeEngine(num_slots=2, max_length=64, vocabulary=(LETTER_A,)))
    reuse_kv: bool = False
    speculates: bool = False
    costs: CostModel = field(default_factory=CostModel.prior)
    shadow: Shadow | None = None
    centre: CentreClient | None = None

    def __post_init__(self) -> None:
        info, costs, before = self.engine.info, self.costs, self.saboteur.before
        limits = SchedulerLimits(
            num_slots=info.num_slots,
            prefill_chunk_tokens=16,
            max_prefill_rows=2,
            stop_token_ids=info.stop_token_ids,
            reuse_kv=self.reuse_kv,
            mixes=info.mixes,
            speculation="tenant" if self.speculates else "off",
        )
        publisher, history = before(self.publisher), before(self.history)
        scheduler = before(build_scheduler(limits=limits, costs=costs, lengths=OutputLengths()))
        self.answers = OpenAnswers(publisher=publisher, offsets=self.offsets, replies=TOPICS.replies)

        def publish_now(progress: list[Progress]) -> None:
            self.worker.publish(progress)

        self.engine_loop = EngineLoop(
            engine=before(self.engine),
            scheduler=scheduler,
            costs=before(costs),
            drafts=Drafts(roster=scheduler, publish=publish_now, interval_s=self.interval_s),
            watch=StepWatch(30.0),
            keep=keep_nothing,
        )
        self.versions = LoadedVersions()
        self.versions.add(
            ServedVersion(
                revision=REVISION,
                model=LoadedModel(self.engine, _TOKENIZER, ChatTemplate.for_tokenizer(_TOKENIZER, CHATML)),
                costs=costs,
                engine_loop=self.engine_loop,
                prompts=self.prompts,
                kv=None,
                prepare=prepares_nothing,
                encode=Tokenizer.byte_level().encode_text,
            )
        )
        self.versions.serve(REVISION)
        self.worker = Worker(
            versions=self.versions,
            answers=self.answers,
            history=history,
            replies=TOPICS.replies,
            max_waiting=4,
            tracer=before(Tracer()),
            shadow=self.shadow,
            centre=self.centre,
        )

    def accept(self, offset: int, *, cancelled: bool = False, **how: Any) -> Job:
        """Have a `job` accepted."""
        made = job(offset, **how)
        made.answer = self.saboteur.before(made.answer)
        self.offsets.open(TOPIC, offset)
        self.worker.accept(made, cancelled=cancelled)
        return made

    def step(self) -> bool:
        """One step as the engine's thread makes it; False when there is nothing left to compute."""
        return self.engine_loop.turn()

    def run(self) -> None:
        while self.step():
            pass

    def acknowledge(self, *, request_id: str | None = None, target: Target | None = None) -> None:
        """Terminal events reach their readers: all, or those of one request or target."""
        for there, name in list(self.publisher.waiting):
            if request_id in {None, name} and target in {None, there}:
                for settled in self.publisher.waiting.pop((there, name)):
                    settled()

    def erase(self, session_id: str = "s") -> int:
        """Its conversation is erased; the generation that has begun."""
        generation = int(now_unix_ms()) + 1
        self.worker.erase(Erase(tenant="demo", session_id=session_id, generation=generation))
        return generation

    def deltas(self) -> list[str]:
        return [reply.delta for reply in self.publisher.said if isinstance(reply, ReplyDelta)]

    def ends(self) -> list[ReplyDone]:
        return [reply for reply in self.publisher.said if isinstance(reply, ReplyDone)]
