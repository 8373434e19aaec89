"""Customers who ask at a steady rate for as long as a fleet changes."""

import asyncio
import random
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Self

from ops.measure.arrivals import schedule
from tests.chaos.actors.load import Load
from tests.chaos.ledger.questions import OPENINGS
from tests.chaos.ledger.recorded import read_recorded, redis_away
from tests.chaos.ledger.requests import Ledger, Page, Question, conversation_of
from tests.chaos.ledger.shipped import Shipped, speakers_of
from tests.chaos.ledger.verdict import Verdict, judge
from tests.proofs.elastic.pool import Pool

DEADLINE_MS: Final = 20_000
_FIRST_TOKEN_MS: Final = 10_000
_NUM_TOKENS: Final = (60, 140)  # more than a second each
_LONG_TOKENS: Final = 500
_MOST_S: Final = 3_000.0


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Use as a context manager; it ends once all that was asked is settled. `clients` tabs, two of each conversation,
    ask `rate` questions a second in all; half of them over an open one. `long_share` of the answers take seconds more
    than the others."""

    ports: Sequence[int]
    rate: float
    clients: int
    seed: int = 1
    long_share: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    _load: Load = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        times_s = schedule("even", rate=self.rate, count=round(self.rate * _MOST_S))
        self._load = Load(
            ledger=self.ledger,
            gateway_ports=self.ports,
            questions=[self._question(number, chance) for number in range(len(times_s))],
            times_s=times_s,
            seed=self.seed,
            proxied_share=0.0,
        )
        self._thread = threading.Thread(target=self._load.run, daemon=True)

    def _question(self, number: int, chance: random.Random) -> Question:
        return Question(
            event_id=f"ask-{number}",
            session=f"visitor-{number // 2 % (self.clients // 2)}~{number % 2}",
            text=chance.choice(OPENINGS),
            temperature=1.0,
            max_output_tokens=_LONG_TOKENS if chance.random() < self.long_share else chance.randint(*_NUM_TOKENS),
            first_token_ms=_FIRST_TOKEN_MS,
            deadline_ms=DEADLINE_MS,
        )

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.to_thread(self._load.begun.wait)
        assert self._load.failure is None, self._load.failure
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._load.ask_no_more()
        if kind is not None:
            self._load.stop()
        await asyncio.to_thread(self._thread.join)
        assert self._load.failure is None, self._load.failure

    @property
    def pages(self) -> list[Page]:
        return list(self.ledger.pages.values())

    async def judged(self, pool: Pool) -> Verdict:
        """Judge by what the workers' own preparers make of the turns that Kafka has."""
        sessions = {conversation_of(page.question.session) for page in self.pages}
        kept = {session: await pool.system.turns(session) for session in sessions}
        away = [times for service in pool.services for times in redis_away(service.log.read_text())]
        recorded = await read_recorded(pool.system.kafka_settings, kept, away)
        rights = Shipped(self.ledger, recorded, speakers_of(pool.system.service_settings))
        return await asyncio.to_thread(judge, self.ledger, rights)

    def gap_s(self, page: Page) -> float:
        """Return the longest time from a text to the next, or to the end, of an answer that has begun."""
        return max((self._running_s(*pair) for pair in pairwise(page.running_s)), default=0.0)

    def wait_s(self, page: Page) -> float:
        """Return how long its client waited for the first text, or for an end without one."""
        first_s = [*page.grown_s[:1], *(at_s for at_s, _ in page.ends[:1])]
        return self._running_s(page.asked_s, first_s[0]) if first_s else 0.0

    def _running_s(self, from_s: float, until_s: float) -> float:
        """Return the time between these moments, without the periods in which the clients' loop was blocked."""
        stalls = self.ledger.stalls
        return until_s - from_s - sum(max(0.0, min(until_s, end) - max(from_s, begin)) for begin, end in stalls)


def broken(verdict: Verdict) -> list[str]:
    """Return what must not be, in words: with the first request of each kind."""
    return [
        f"{breach.value} ({len(found)}): {found[0][0].question.event_id}: {found[0][1]}"[:400]
        for breach, found in verdict.broken.items()
        if found
    ] + ([f"{verdict.strays} events of no request"] if verdict.strays else [])


def kept(
    pages: Sequence[Page],
    workers: Mapping[str, int],
    *,
    staying: Collection[int],
    before_s: float,
    after_s: float,
    until_s: float,
) -> list[bool]:
    """Return whether one worker answered before a change and after it, of each conversation whose worker stays.
    `workers` says who answered a response."""
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for page in sorted(pages, key=lambda page: page.asked_s):
        worker = workers.get(page.response_id or "")
        if worker is None or page.asked_s > until_s:
            continue
        if page.asked_s < before_s:
            last[conversation_of(page.question.session)] = worker
        elif page.asked_s > after_s:
            first.setdefault(conversation_of(page.question.session), worker)
    return [first[session] == worker for session, worker in last.items() if session in first and worker in staying]
