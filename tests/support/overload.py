"""A load of up to ten times the capacity on a system of its own, and what became of each request by its client's clock.

The capacity is measured first, in a closed loop. Then an open loop runs one phase after the other, each request at its
own time whatever became of those before. A response is remembered after its end, so that a second one is seen.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from ops.client.dialogue import CONNECTION_LOST, Dialogue
from ops.client.load import Load
from ops.client.plan import plan_of
from ops.command_line import Broker
from ops.load.system import System
from ops.measure.arrivals import schedule
from ops.measure.pacer import Pacer
from ops.measure.quantiles import percentile
from ops.measure.usage import raise_file_limit
from ops.stack.own_pages import open_page
from ops.texts.prompts import question
from shared.settings import Settings
from shared.wire.messages import (
    BY_MODEL,
    ErrorEvent,
    Limits,
    Reason,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    Source,
    Status,
)

BEFORE: Final = "half"
MOST: Final = "10×"
AFTER: Final = "half again"
LOADS: Final = ((BEFORE, 0.5), ("1.5×", 1.5), ("3×", 3.0), (MOST, 10.0), (AFTER, 0.5))
"""The phases in their order, each with its load in multiples of the capacity."""
FIRST_TOKEN_MS: Final = 2_000
DEADLINE_MS: Final = 4_000
RECOVERED_WITHIN: Final = 0.10
_BUCKET_S: Final = 1.0
_CALM_BUCKETS: Final = 3
_ROUNDING_MS: Final = 2.0  # the gateway's deadlines are whole milliseconds, rounded down
_PATIENCE_S: Final = 3.0  # after the last deadline: what has not come by then never comes
_SLOTS: Final = 8
_QUESTION_WORDS: Final = 24
_ANSWER_TOKENS: Final = 16
_CLIENTS: Final = 3 * _SLOTS
_CAPACITY_ANSWERS: Final = 20 * _SLOTS
_PATIENT_MS: Final = 60_000
_HEADROOM: Final = 1.25
_MOST_FILES: Final = 4_256
_OPENING_TOGETHER: Final = 64
_FALLBACKS: Final = "replyline_gateway_fallbacks_total"
_BEGUN: Final = "replyline_worker_queue_seconds_count"
_ODD: Final = "replyline_worker_odd_requests_total"


class Ending(Enum):
    """`AT_ONCE`: by the gateway, without the workers. `GIVEN_UP`: the fallback, after a worker said that it would not.
    `SOFT_DEADLINE`: the fallback, when the first token's time was over. `LATE`: by the model, cut or past the deadline.
    """

    IN_TIME = "in_time"
    LATE = "late"
    AT_ONCE = "at_once"
    GIVEN_UP = "given_up"
    SOFT_DEADLINE = "soft_deadline"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request. Times are seconds of one monotonic clock; None: it has not happened. `terminals` counts its
    terminal events, and `predicted` says that `response.created` told a first token's time: the workers got it."""

    due_s: float
    sent_s: float | None = None
    predicted: bool = False
    first_s: float | None = None
    done_s: float | None = None
    terminals: int = 0
    source: Source | None = None
    status: Status | None = None
    reason: Reason | None = None
    error: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_s is None else (self.first_s - self.due_s) * 1_000

    @property
    def ending(self) -> Ending:
        if self.done_s is None:
            return Ending.MISSING
        if self.error is not None:
            return Ending.REFUSED
        took_ms = (self.done_s - self.due_s) * 1_000
        if self.source in BY_MODEL:
            whole = self.status == "completed" or (self.status, self.reason) == ("incomplete", "max_output_tokens")
            return Ending.IN_TIME if whole and took_ms <= DEADLINE_MS else Ending.LATE
        if not self.predicted:
            return Ending.AT_ONCE
        return Ending.SOFT_DEADLINE if took_ms >= FIRST_TOKEN_MS - _ROUNDING_MS else Ending.GIVEN_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`rate` in requests a second; from `start_s` of the monotonic clock."""

    name: str
    rate: float
    start_s: float
    seconds: float

    def holds(self, at_s: float | None) -> bool:
        return at_s is not None and self.start_s <= at_s < self.start_s + self.seconds

    def asked(self, everything: Sequence[Asked]) -> list[Asked]:
        return [one for one in everything if self.holds(one.due_s)]

    def in_time_per_s(self, everything: Sequence[Asked]) -> float:
        """The model's answers in time that ended in the phase, whenever they were due."""
        return sum(one.ending is Ending.IN_TIME and self.holds(one.done_s) for one in everything) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """`fallbacks` by the gateway's own reasons; `begun` and `begun_late` as the worker counts them: whose first engine
    step was made at all, and made after the first token was due."""

    phases: dict[str, Phase]
    asked: list[Asked]
    fallbacks: dict[str, int]
    begun: int
    begun_late: int

    @property
    def kept(self) -> float:
        """Answers in time a second at the most load, of the best at any."""
        rates = {name: phase.in_time_per_s(self.asked) for name, phase in self.phases.items()}
        return rates[MOST] / max(rates.values())

    @property
    def recovery_s(self) -> float | None:
        return recovery_s(self.phases[BEFORE], self.phases[AFTER], self.asked)

    def at_once_p99_ms(self) -> float | None:
        """How long the answers without a worker took, at the most load."""
        phase = self.phases[MOST].asked(self.asked)
        took = sorted(
            (one.done_s - one.due_s) * 1_000
            for one in phase
            if one.ending in {Ending.AT_ONCE, Ending.REFUSED} and one.done_s is not None
        )
        return percentile(took, 0.99) if took else None


def recovery_s(before: Phase, after: Phase, everything: Sequence[Asked]) -> float | None:
    """Seconds from the start of `after`, at the load of `before`, until it is as it was `before` again: from there on,
    in each of three seconds, the model's share of the requests due in it and the P99 of their TTFT are within a tenth
    of those of the whole of `before`. None: not within the phase, or there is nothing to compare with."""
    usual = before.asked(everything)
    share, ttft_ms = _share(usual), _ttft_p99_ms(usual)
    if ttft_ms is None:
        return None

    def calm(place: int) -> bool:
        start_s = after.start_s + place * _BUCKET_S
        bucket = [one for one in everything if start_s <= one.due_s < start_s + _BUCKET_S]
        p99 = _ttft_p99_ms(bucket)
        as_fast = p99 is not None and p99 <= ttft_ms * (1 + RECOVERED_WITHIN)
        return not bucket or (as_fast and _share(bucket) >= share * (1 - RECOVERED_WITHIN))

    calms = [calm(place) for place in range(int(after.seconds / _BUCKET_S))]
    for place in range(len(calms) - _CALM_BUCKETS + 1):
        if all(calms[place : place + _CALM_BUCKETS]):
            return place * _BUCKET_S
    return None


def _share(asked: Sequence[Asked]) -> float:
    return sum(one.ending is Ending.IN_TIME for one in asked) / len(asked) if asked else 0.0


def _ttft_p99_ms(asked: Sequence[Asked]) -> float | None:
    ordered = sorted(one.ttft_ms for one in asked if one.ending is Ending.IN_TIME and one.ttft_ms is not None)
    return percentile(ordered, 0.99) if ordered else None


class _Connection:
    """`settled()` once for each question: answered, refused, or its connection lost."""

    def __init__(self, settled: Callable[[], None]) -> None:
        self._settled = settled
        self.dialogue = Dialogue(self._hear, self._lose)
        self.open: dict[str, Asked] = {}
        self._by_response: dict[str, tuple[str, Asked]] = {}

    def ask(self, number: int, asked: Asked) -> None:
        request = ResponseCreate(
            event_id=f"overload-{number}",
            input=question(_QUESTION_WORDS, number),
            max_output_tokens=_ANSWER_TOKENS,
            temperature=0.0,
        )
        asked.sent_s = time.monotonic()
        self.open[request.event_id] = asked
        self.dialogue.send(request)

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        match message:
            case ResponseDelta():
                asked = self._by_response[message.response_id][1]
                asked.first_s = asked.first_s or now_s
            case ResponseCreated():
                asked = self.open[message.event_id]
                asked.predicted = message.eta_ms is not None
                self._by_response[message.response_id] = (message.event_id, asked)
            case ResponseDone(response=response):
                event_id, asked = self._by_response[response.id]
                asked.terminals += 1
                if asked.done_s is None:
                    asked.source, asked.status, asked.reason = response.source, response.status, response.reason
                    self._end(event_id, asked, now_s)
            case ErrorEvent(event_id=event_id) if event_id in self.open:
                self.open[event_id].error = message.error.code
                self._end(event_id, self.open[event_id], now_s)

    def _end(self, event_id: str, asked: Asked, now_s: float) -> None:
        asked.done_s = now_s
        del self.open[event_id]
        self._settled()

    def _lose(self) -> None:
        for asked in self.open.values():
            asked.error = CONNECTION_LOST
        self.open.clear()


@dataclass(slots=True, kw_only=True)
class _Clients:
    """An open loop over connections that take turns."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    _limits: Limits | None = None
    _connections: deque[_Connection] = field(default_factory=deque)
    _waiting: deque[tuple[int, Asked]] = field(default_factory=deque)

    async def open(self, rate: float) -> None:
        """So many connections that neither limit of one (messages a minute, in flight) is met by the load itself."""
        first = _Connection(self._dispatch)
        self._limits = (await first.dialogue.open(self.url)).limits
        by_rate = rate * 60 / self._limits.messages_per_minute
        by_inflight = rate * DEADLINE_MS / 1_000 / self._limits.max_inflight
        self._connections.append(first)
        while (missing := math.ceil(max(by_rate, by_inflight) * _HEADROOM) - len(self._connections)) > 0:
            fresh = [_Connection(self._dispatch) for _ in range(min(_OPENING_TOGETHER, missing))]
            await asyncio.gather(*(connection.dialogue.open(self.url) for connection in fresh))
            self._connections += fresh

    def close(self) -> None:
        for connection in self._connections:
            connection.dialogue.close()

    async def open_loop(self, due: Sequence[Asked]) -> None:
        """Ask each when it is due; return when each is settled, or given up three seconds after the last deadline."""
        pacer = Pacer([one.due_s for one in due], lambda index: self._come_due(due[index]))
        until_s = max(one.due_s for one in due) + DEADLINE_MS / 1_000 + _PATIENCE_S
        try:
            while time.monotonic() < until_s:
                if pacer.finished and not self._waiting and not any(one.open for one in self._connections):
                    break
                await asyncio.sleep(0.1)
        finally:
            pacer.close()

    def _come_due(self, asked: Asked) -> None:
        self.asked.append(asked)
        self._waiting.append((len(self.asked), asked))
        self._dispatch()

    def _dispatch(self) -> None:
        most = self._limits.max_inflight if self._limits else 0
        for _ in range(len(self._connections)):
            if not self._waiting:
                return
            self._connections.rotate(-1)
            connection = self._connections[0]
            if not connection.dialogue.lost and len(connection.open) < most:
                connection.ask(*self._waiting.popleft())


async def measure_overload(settings: Settings, *, seconds: float, seed: int, broker: Broker) -> Overload:
    """Run all phases, each of `seconds`, on the fake engine. Raises `ServiceError`, `ConnectFailed`."""
    raise_file_limit(_MOST_FILES)
    with System(settings=settings, broker=broker, env=_env(settings)) as system:
        await system.start_services()
        gateway, url = await system.start_gateway()
        _, worker_page = await system.start_worker()
        capacity = await _capacity(url)
        clients = _Clients(url=url)
        try:
            await clients.open(capacity * max(load for _, load in LOADS))
            counted = await asyncio.to_thread(_counters, system.metrics_of(gateway))
            phases = _phases(capacity, seconds)
            due = [one for number, phase in enumerate(phases.values()) for one in _due(phase, seed + number)]
            await clients.open_loop(due)
        finally:
            clients.close()
        fallbacks = Counter(await asyncio.to_thread(_counters, system.metrics_of(gateway)))
        fallbacks.subtract(counted)
        worker = await asyncio.to_thread(_counters, worker_page)
    return Overload(
        phases=phases,
        asked=clients.asked,
        fallbacks={name: count for name, count in fallbacks.items() if count},
        begun=worker[_BEGUN],
        begun_late=worker["late"],
    )


def _env(settings: Settings) -> dict[str, str]:
    """The gateway's limits as they ship; steps as the CPU engine's; a prompt is its question alone."""
    return {
        "GATEWAY__MESSAGES_PER_MINUTE": str(settings.gateway.messages_per_minute),
        "GATEWAY__MAX_INFLIGHT": str(settings.gateway.max_inflight),
        "PROMISE__FIRST_TOKEN_MS": str(FIRST_TOKEN_MS),
        "PROMISE__DEADLINE_MS": str(DEADLINE_MS),
        "PROMISE__MAX_DEADLINE_MS": str(_PATIENT_MS),
        "WORKER__ENGINE": "fake",
        "WORKER__SLOTS": str(_SLOTS),
        "WORKER__SYSTEM_PROMPT": "",
        "WORKER__GROUNDING_ENTRIES": "0",
        "WORKER__HISTORY_TURNS": "0",
        "WORKER__FAKE_PREFILL_MS_PER_TOKEN": "0.1",
        "WORKER__FAKE_DECODE_MS_PER_STEP": "13",
    }


async def _capacity(url: str) -> float:
    """Model answers a second while more are asked than there are slots; the first of each client do not count."""
    load = Load(url, connections=_CLIENTS, max_inflight=1)
    texts = [question(_QUESTION_WORDS, number) for number in range(_CAPACITY_ANSWERS)]
    plan = plan_of(texts, await load.look(), max_output_tokens=_ANSWER_TOKENS, deadline_ms=_PATIENT_MS)
    outcomes = await load.run(plan, clients=_CLIENTS)
    ended = sorted(one.done_s for one in outcomes if one.by_model and one.done_s is not None)
    assert len(ended) > 2 * _CLIENTS, "the model answers nearly nothing"
    return (len(ended) - 2 * _CLIENTS) / (ended[-_CLIENTS] - ended[_CLIENTS])


def _phases(capacity_per_s: float, seconds: float) -> dict[str, Phase]:
    start_s = time.monotonic() + 0.2
    return {
        name: Phase(name=name, rate=load * capacity_per_s, start_s=start_s + number * seconds, seconds=seconds)
        for number, (name, load) in enumerate(LOADS)
    }


def _due(phase: Phase, seed: int) -> list[Asked]:
    """Poisson arrivals over the whole phase."""
    most = math.ceil(phase.rate * phase.seconds * 2) + 50
    times = schedule("poisson", rate=phase.rate, count=most, seed=seed)
    return [Asked(due_s=phase.start_s + at_s) for at_s in times if at_s < phase.seconds]


def _counters(url: str) -> dict[str, int]:
    """What is counted: fallbacks by reason, and what the worker has begun."""
    with open_page(url, timeout_s=10) as response:
        page: bytes = response.read()
    return {
        next(iter(sample.labels.values()), sample.name): int(sample.value)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name in {_FALLBACKS, _BEGUN, _ODD}
    }
