"""The plan of one world, drawn from a seed: pure."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

SESSIONS: Final = 6
OVER_S: Final = 8.0
_ASKS: Final = 30
_BRIEF: Final = 0.75
_WORKERS_WEIGHT: Final = 2  # where answers change hands
_LONG_TOKENS: Final = 40
_LONG_MS: Final = 10_000
_GARBAGE: Final = 0.3
_ABUSE: Final = 0.2
_PRESS: Final = 0.07
_POISON: Final = {"asks": 0.003, "records": 0.1}
_PATIENT_MS: Final = 60_000
CANARY: Final = 12
"""The canary's worker, as a fault's target: no other fault's is so high."""
ELASTIC: Final = (20, 21, 22)
"""The extra workers of a growing fleet, as targets of faults."""
MOVES: Final = ("enter-worker", "leave-worker")
"""The steps of a fleet that grows and shrinks: start a worker, or drain and end one."""
_SCALED: Final = 0.3
_LEAVES: Final = 0.3  # share of the permanent workers that leave
_AT_ONCE: Final = 0.4
_CANARY: Final = 0.25
_SECOND_TAB: Final = 0.3
_OVERLAPS: Final = 0.7
_OVERLAP_S: Final = 0.5
_CANARY_ENDS: Final = (
    *("rollback", "rollback", "kill-worker", "kill-worker"),
    *("freeze-worker", "stop-worker"),
)
FAULTS: Final = (0, 1, 2, 3, 3, 4)
KINDS: Final = (
    *("kill-gateway", "stop-gateway", "freeze-gateway"),
    *("kill-worker", "stop-worker", "freeze-worker", "hang-worker", "join-worker", "spoil-worker"),
    *("broker-down", "move-leaders", "slow-broker", "slow-acks", "stale-metadata", "grow-replies"),
    *("redis-away", "redis-slow", "redis-hang", "redis-readonly", "redis-full", "redis-unheard", "redis-evict"),
    "redis-garble",
    *("cut", "half-open", "slow-net", "clock", "forge", "retention", "keys-rotate", "keys-away"),
)
"""The faults: each kind with its targets."""
CALLS: Final = {
    "worker": ("Produce", "OffsetCommit", "JoinGroup", "SyncGroup", "OffsetFetch", "EVALSHA", "LRANGE"),
    "gateway": ("Produce", "OffsetCommit", "SyncGroup", "EVALSHA"),
}
"""The calls that can trigger a fault of a process."""
_BOTH: Final = (
    *("shared.faq.answer_policy:AnswerPolicy", "shared.records.commits:Commits", "shared.faq.index:FaqIndex"),
    *("shared.records.dead_letters:DeadLetters", "shared.records.dead_letters:letter_of"),
    *(f"shared.records.processor:{each}" for each in ("asker_of", "failed_end", "open_request")),
)
SEAMS: Final = {
    "gateway": (
        *(f"gateway.kafka.{each}" for each in ("question_reader:QuestionReader", "request_publisher:RequestPublisher")),
        *("gateway.kafka.log_follower:LogFollower", "shared.records.log_readers:decode_reply"),
        *(
            f"gateway.people.{each}"
            for each in ("people:People", "handoffs:Handoffs", "session_answers:SessionAnswers")
        ),
        *(f"gateway.request.{each}" for each in ("inflight:InflightTable", "cursor:CursorKey", "cursor:Seal")),
        *(f"gateway.request.replies:{each}" for each in ("add_delta", "finish")),
        *(f"gateway.request.endings:{each}" for each in ("fall_back", "cut", "cancel", "fail")),
        *("gateway.serving.deadlines:DueTimes", "gateway.serving.asking:reattach"),
        *(f"gateway.serving.resuming:{each}" for each in ("adopt", "resume", "end_recall")),
        *(f"gateway.serving.answering:{each}" for each in ("Answering", "choose_fallback")),
        "gateway.destination.gate:AdmissionGate",
        *("gateway.serving.asking:Asking", "gateway.serving.asking:promise", "gateway.serving.sending:Sending"),
        "gateway.destination.count:check_length",
        *(f"gateway.serving.{each}" for each in ("erasing:Erasing", "gateway:Gateway", "resuming:Resuming")),
        *(f"gateway.session.{each}" for each in ("connection:Connections", "recall:Recall")),
        *("gateway.session.protocol:Session", "gateway.request.outbox:Outbox", "gateway.telemetry.tracer:Tracer"),
        *("gateway.destination.admission:Admission", "gateway.frontends.websocket:WebSocketConnection"),
        *("gateway.forwarding.router:settle", *_BOTH),
    ),
    "worker": (
        *(f"workers.answer.{each}" for each in ("stream:Answer", "stream:Detokenizer")),
        *("workers.engine.fake:FakeEngine", "workers.intake.prepare:Preparer", "workers.intake.triage:Triage"),
        *(f"workers.intake.{each}" for each in ("reader:settle", "lookahead:Lookahead", "cancels:decode_notice")),
        *(f"workers.request.{each}" for each in ("recent_answers:RecentAnswers", "recent_answers:RecentCancels")),
        *("workers.request.open_answers:OpenAnswers", "workers.request.open_answers:AnswerReaders"),
        "workers.request.reply_publisher:ReplyPublisher",
        *("workers.prompt.conversation:PromptBuilder", "workers.telemetry.tracer:Tracer", *_BOTH),
        *(f"workers.schedule.{each}" for each in ("costs:CostModel", "scheduler:Scheduler")),
        *(f"workers.serving.{each}" for each in ("engine_loop:EngineLoop", "engine_loop:run_step", "worker:Worker")),
        "workers.serving.worker:count_end",
    ),
}
"""The classes and functions in which an exception can be injected."""
ACTS: Final = ("erase", "erase-elsewhere", "handoff", "leave", "leave", "again", "flood", "refresh")
ABUSES: Final = ("gorge", "intrude", "steal")
"""The faults that are not a customer's action."""

What = Literal["question", "poison", "garbage"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A customer's question. Most of them allow the first token as long as the whole answer."""

    at_s: float
    session: int
    tokens: int = 12
    soft_ms: int = 3_000
    hard_ms: int = 5_000
    cancel_after_s: float | None = None
    what: What = "question"
    """Poison ends every worker that computes it; garbage is not a valid request."""
    tab: int = 0

    @property
    def customer(self) -> str:
        """Return the name of the tab that asks: the second of a conversation is `s3~1`."""
        return f"s{self.session}{f'~{self.tab}' * (self.tab > 0)}"


@dataclass(frozen=True, slots=True)
class Act:
    """Another action of a customer."""

    at_s: float
    session: int
    what: str

    @property
    def customer(self) -> str:
        """Return the name of the tab that does it: the first."""
        return f"s{self.session}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. With `call` it happens at the process's next call of that name instead of at its time."""

    at_s: float
    kind: str
    target: int = 0
    for_s: float = 1.0
    call: str = ""
    nth: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided before the run; the schedule decides the rest from `seed`."""

    seed: int
    asks: tuple[Ask, ...] = ()
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()
    records: tuple[Ask, ...] = ()
    """What other services write to the inbox."""
    canary: bool = False
    """Half of the conversations go to a canary's worker."""

    @property
    def size(self) -> int:
        return len(self.asks) + len(self.acts) + len(self.faults) + len(self.records)

    @property
    def presses(self) -> bool:
        return any(ask.session > SESSIONS for ask in self.asks)

    @property
    def only_scaled(self) -> bool:
        """Return whether workers only join and leave, without any fault of a process."""
        return any(self.faults) and all(fault.kind in MOVES for fault in self.faults)

    @property
    def customers(self) -> list[str]:
        return sorted({*(ask.customer for ask in self.asks), *(act.customer for act in self.acts), "s0"})


def plan_of(seed: int, *, faults: int | None = None) -> Plan:
    """Draw a plan."""
    chance = random.Random(f"{seed}/plan")
    plan = Plan(
        seed=seed,
        asks=_in_order(_ask(chance) for _ in range(_ASKS)),
        acts=_in_order([_act(chance) for _ in range(chance.choice((0, 1, 2, 4, 8)))] + _abuses(chance)),
        faults=_in_order(
            [_fault(chance) for _ in range(chance.choice(FAULTS) if faults is None else faults)]
            + _throws(random.Random(f"{seed}/throws"))
        ),
        records=_in_order(_record(chance) for _ in range(chance.choice((0, 0, 3, 6)))),
    )
    plan = replace(plan, asks=_in_order(_in_two_tabs(random.Random(f"{seed}/tabs"), plan.asks)))
    if chance.random() < _PRESS and faults is None:
        plan = _pressed(chance, plan)
    scaling = random.Random(f"{seed}/scaling")
    if scaling.random() < _SCALED and faults is None:
        plan = _scaled(scaling, plan)
        if plan.only_scaled:
            return plan
    chance = random.Random(f"{seed}/canary")
    return _with_canary(chance, plan) if chance.random() < _CANARY and faults is None else plan


def _in_two_tabs(chance: random.Random, asks: Sequence[Ask]) -> Iterator[Ask]:
    """Yield the questions. Some come from the conversation's second tab, mostly while the previous question is open."""
    last: dict[int, Ask] = {}
    for drawn in asks:
        ask, before = drawn, last.get(drawn.session)
        if before is not None and chance.random() < _SECOND_TAB:
            at_s = round(before.at_s + chance.uniform(0, _OVERLAP_S), 3)
            ask = replace(drawn, tab=1, at_s=at_s if chance.random() < _OVERLAPS else drawn.at_s)
        last[drawn.session] = ask
        yield ask


def _scaled(chance: random.Random, plan: Plan) -> Plan:
    """Let workers join and leave, sometimes several at the same time; in half of these worlds nothing else happens."""
    moves = [
        Fault(at_s, MOVES[number % 2], worker)
        for worker in chance.sample(ELASTIC, chance.choice((1, 2, 2, 3)))
        for number, at_s in enumerate(sorted(_moment(chance) for _ in range(chance.choice((1, 2, 2, 3)))))
    ]
    moves += [Fault(_moment(chance), "leave-worker", worker) for worker in (0, 1) if chance.random() < _LEAVES]
    if chance.random() < _AT_ONCE:
        moments = [_moment(chance) for _ in range(2)]
        moves = [replace(move, at_s=moments[move.kind == "leave-worker"]) for move in moves]
    others = () if chance.random() < 0.5 else plan.faults
    return replace(plan, faults=_in_order([*others, *moves]))


def _pressed(chance: random.Random, plan: Plan) -> Plan:
    """Let one customer ask without pause while a worker is frozen."""
    start_s, worker = chance.uniform(1, 4), chance.randrange(12)
    moments = [start_s + max(0, number - 11) * 0.1 for number in range(48)]  # twelve at the start, then ten a second
    asks = [Ask(round(at_s, 3), SESSIONS + 1, tokens=3, soft_ms=600, hard_ms=2_000) for at_s in moments]
    stands = Fault(round(start_s, 3), "freeze-worker", worker, 8.0)
    return replace(plan, asks=_in_order([*plan.asks, *asks]), faults=_in_order([*plan.faults, stands]))


def _with_canary(chance: random.Random, plan: Plan) -> Plan:
    """Add a canary, and roll it back or let its worker fail, once or twice."""
    ends = [
        Fault(_moment(chance), chance.choice(_CANARY_ENDS), CANARY, chance.choice((0.5, 3.0, 20.0)))
        for _ in range(chance.choice((1, 1, 2)))
    ]
    return replace(plan, canary=True, faults=_in_order([*plan.faults, *ends]))


def _act(chance: random.Random) -> Act:
    return Act(_moment(chance), chance.randrange(SESSIONS), chance.choice(ACTS))


def _abuses(chance: random.Random) -> list[Act]:
    """Return the abuses of another customer."""
    return [Act(_moment(chance), SESSIONS, what) for what in ABUSES if chance.random() < _ABUSE]


def _record(chance: random.Random) -> Ask:
    """Return another service's record; some requests need more time than their deadline allows."""
    drawn = chance.random()
    what: What = "garbage" if drawn < _GARBAGE else "poison" if drawn > 1 - _POISON["records"] else "question"
    hard_ms = chance.choice((1_000, 3_000, _PATIENT_MS, _PATIENT_MS))
    return replace(_ask(chance), cancel_after_s=None, what=what, hard_ms=hard_ms)


def _in_order(rows: Any) -> Any:
    return tuple(sorted(rows, key=lambda row: row.at_s))


def _moment(chance: random.Random) -> float:
    return round(chance.uniform(0, OVER_S), 3)


def _ask(chance: random.Random) -> Ask:
    brief = chance.random() < _BRIEF
    hard_ms = chance.choice((2_000, 5_000, 10_000)) if brief else _LONG_MS
    return Ask(
        at_s=_moment(chance),
        session=chance.randrange(SESSIONS),
        tokens=chance.randint(2, 12) if brief else _LONG_TOKENS,
        soft_ms=chance.choice((min(3_000, hard_ms), hard_ms)),
        hard_ms=hard_ms,
        cancel_after_s=round(chance.uniform(0.01, 1.5), 3) if chance.random() < (0.1 if brief else 0.5) else None,
        what="poison" if chance.random() < _POISON["asks"] else "question",
    )


def _fault(chance: random.Random) -> Fault:
    kind = chance.choice([kind for kind in KINDS for _ in range(_WORKERS_WEIGHT if kind.endswith("worker") else 1)])
    calls = CALLS.get(kind.rpartition("-")[2], ()) if kind.startswith(("kill", "freeze", "stop")) else ()
    return Fault(
        at_s=_moment(chance),
        kind=kind,
        target=chance.randrange(12),
        for_s=chance.choice(_seconds(kind)),
        call=chance.choice(calls) if calls and chance.random() < 0.4 else "",
    )


def _throws(chance: random.Random) -> list[Fault]:
    """Inject exceptions in one world of three, at a randomly chosen method of a part, when it is first called."""
    return [
        Fault(
            at_s=_moment(chance),
            kind=f"throw-{where}",
            target=chance.randrange(12),
            call=chance.choice(SEAMS[where]) + chance.choice(("", " done")),
            nth=chance.choice((1, 1, 2, 3)),
        )
        for where in chance.choice(((), (), ("gateway", "worker") * 6))
    ]


def _seconds(kind: str) -> tuple[float, ...]:
    match kind:
        case "freeze-gateway":
            return 0.03, 0.08, 0.15
        case "freeze-worker":
            return 0.08, 0.5, 2.0, 8.0
        case "clock":
            return -5.0, -0.5, 0.5, 5.0
    return 0.2, 1.0, 3.0
