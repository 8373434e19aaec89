"""Customers who ask through WebSockets at a steady rate, and what each answer is held to: its revision's own tokens."""

import asyncio
import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Self

from ops.measure.arrivals import schedule
from shared.conversation.turn import Turn
from shared.faq import FaqIndex
from shared.faq.fallback import choose_fallback
from shared.faq.speech.words import WaysOn
from shared.versions.state import Move, Rule
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey
from tests.chaos.actors.load import Load
from tests.chaos.faults.schedule import Fault, Kind
from tests.chaos.ledger.recorded import Recorded, read_recorded, redis_away
from tests.chaos.ledger.requests import Ledger, Page, Question
from tests.chaos.ledger.shipped import choices_of
from tests.chaos.ledger.verdict import Rights, Verdict, judge
from tests.proofs.lifecycle.models import HISTORY_TURNS, Speaker, question_of
from tests.proofs.lifecycle.setting import Setting

NUM_TOKENS: Final = 48
_DEADLINE_MS: Final = 20_000
_WAYS_ON: Final = WaysOn(handoff=True)  # as tests/support/system.py sets it
_FIRST_TOKEN_MS: Final = 8_000


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that ended at `ended_unix_ms`. `asked_unix_ms` is when its client asked."""

    session: str
    asked_unix_ms: float
    ended_unix_ms: float
    response: Response

    @property
    def lane(self) -> Lane:
        return self.response.lane or CHAMPION

    @property
    def by_model(self) -> bool:
        return self.response.source == "model" and self.response.revision is not None


@dataclass(slots=True, kw_only=True)
class Talk:
    """Use as a context manager, which ends once all that was asked is settled. Each of the `clients` asks in its turn,
    `rate` questions a second in all, for `seconds` or until `enough`."""

    setting: Setting
    rate: float
    seconds: float
    clients: int = 40
    seed: int = 1
    ledger: Ledger = field(default_factory=lambda: Ledger(versions=True))
    _load: Load = field(init=False)
    _thread: threading.Thread = field(init=False)
    _clock_ms: float = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        times_s = schedule("even", rate=self.rate, count=round(self.rate * self.seconds))
        self._load = Load(
            ledger=self.ledger,
            gateway_ports=[int(gateway.address.rpartition(":")[2]) for gateway in self.setting.gateways],
            questions=[self._question(number, chance) for number in range(len(times_s))],
            times_s=times_s,
            seed=self.seed,
            proxied_share=0.0,
        )
        self._thread = threading.Thread(target=self._load.run, daemon=True)
        self._clock_ms = (time.time() - time.monotonic()) * 1_000

    def _question(self, number: int, chance: random.Random) -> Question:
        return Question(
            event_id=f"ask-{self.seed}-{number}",
            session=f"visitor-{self.seed}-{number % self.clients}",
            text=question_of(chance),
            max_output_tokens=NUM_TOKENS,
            first_token_ms=_FIRST_TOKEN_MS,
            deadline_ms=_DEADLINE_MS,
        )

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.to_thread(self._load.begun.wait)
        assert self._load.failure is None, self._load.failure
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self._load.stop()
        await asyncio.to_thread(self._thread.join)

    def enough(self) -> None:
        """Ask no more."""
        self._load.ask_no_more()

    def cut(self, client: int) -> None:
        """Drop a client's socket: it comes back to either gateway."""
        self._load.strike(Fault(0.0, Kind.CUT, client, 0.0))

    def answered(self) -> list[Answered]:
        """Return the answers that have ended, in the order in which they were asked."""
        return [self._answered(page) for page in list(self.ledger.pages.values()) if page.ends]

    def _answered(self, page: Page) -> Answered:
        asked_ms, ended_ms = (at_s * 1_000 + self._clock_ms for at_s in (page.asked_s, page.ends[0][0]))
        return Answered(page.question.session, asked_ms, ended_ms, page.ends[0][1])

    async def judged(self) -> "Judged":
        """Compare every answer with what its revision says by itself, after the turns that the history has."""
        sessions = {page.question.session for page in self.ledger.pages.values()}
        turns = {session: await self.setting.system.turns(session) for session in sessions}
        away = [times for service in self.setting.system.services for times in redis_away(service.log.read_text())]
        recorded = await read_recorded(self.setting.system.kafka_settings, turns, away)
        rights = OwnTokens(self.setting.speakers, recorded, self.ledger)
        verdict = await asyncio.to_thread(judge, self.ledger, rights)
        return Judged(verdict, self.answered(), rights.unknown, rights.num_short)


@dataclass(frozen=True, slots=True)
class Judged:
    """`unknown`: answers of a revision that was never added. `num_short`: answers to a prompt that lacked turns because
    Redis was away."""

    verdict: Verdict
    answers: list[Answered]
    unknown: int
    num_short: int

    @property
    def broken(self) -> list[str]:
        """Return what must not be, in words: with the first request of each kind."""
        found = [
            f"{breach.value} ({len(pages)}): {pages[0][0].question.event_id}: {pages[0][1]}"[:400]
            for breach, pages in self.verdict.broken.items()
            if pages
        ]
        return found + ([f"{self.unknown} answers of an unknown revision"] if self.unknown else [])

    @property
    def instead(self) -> list[Answered]:
        """Return the answers that no model gave."""
        return [answer for answer in self.answers if not answer.by_model]


class OwnTokens:
    """The right texts of a question: what the answer's revision says by itself of the same history, and the
    fallback's. What was shown before a restart may be another revision's. If Redis was away from a process, the text of
    a shorter history is right too, and is counted: a call to Redis ends after 50 ms, also on a machine under load."""

    def __init__(self, speakers: dict[str, Speaker], recorded: Recorded, ledger: Ledger) -> None:
        self._speakers = speakers
        self._recorded = recorded
        self._ledger = ledger
        self._faq = FaqIndex.load()
        self.unknown = self.num_short = 0

    def __call__(self, question: Question) -> Rights:
        page = self._ledger.pages[question.event_id]
        fallback = choose_fallback(question.text, self._faq.search(question.text), ways_on=_WAYS_ON).text
        response = page.ends[0][1] if page.ends else None
        revision = (response.revision or "") if response is not None and response.source == "model" else ""
        self.unknown += bool(revision) and revision not in self._speakers
        shown = page.abandoned or response is None
        wanted = self._speakers if shown else {revision} & self._speakers.keys()
        whole, *shorter = self._histories(page)
        shown = _by_model(page)

        def says(name: str, turns: Sequence[Turn]) -> str:
            return self._speakers[name].says(question.text, question.max_output_tokens, turns, like=shown[-1])

        said = {name: says(name, whole) for name in wanted}
        model, others = said.pop(revision, ""), list(said.values())
        missing = [text for text in shown if not any(each.startswith(text) for each in (model, *others))]
        for turns, name in product(shorter, wanted if missing else ()):
            short = says(name, turns)
            if found := [text for text in missing if short.startswith(text)]:
                others.append(short)
                missing = [text for text in missing if text not in found]
                self.num_short += 1
            if not missing:
                break
        return Rights(model, fallback, tuple(others))

    def _histories(self, page: Page) -> Iterator[Sequence[Turn]]:
        """Yield the turns in the question's prompt: what had ended when it was asked, by its record. Then, if Redis was
        away, fewer of them and of those before them."""
        requests = self._recorded.requests.get(page.response_id or "", ())
        earlier = self._recorded.earlier(requests[0]) if requests else []
        yield [turns[0] for turns in earlier][-HISTORY_TURNS:]
        if requests and self._recorded.may_lack_turns(requests[0], earlier):
            yield from choices_of(earlier[-HISTORY_TURNS - 3 :], HISTORY_TURNS)


def _by_model(page: Page) -> list[str]:
    """Return each text of a model that the client was shown, by its sending; the last may be empty."""
    last = "".join(page.deltas)
    for _, response in page.ends[:1]:
        last = response.output_text if response.source == "model" else ""
    return [*page.abandoned, last]


def p99_ms(answers: Sequence[Answered]) -> float:
    """Return the 99th percentile of the first text's times."""
    times = sorted(answer.response.timings.ttft_ms for answer in answers if answer.response.timings.ttft_ms is not None)
    return times[min(len(times) - 1, round(0.99 * len(times)))] if times else float("nan")


def last_on_the_old_s(move: Move, moves: Sequence[Move], answers: Sequence[Answered]) -> float:
    """Return how long after a champion's move the last question was asked that the version before answered.

    A question asked shortly before the next move may be answered by that one's version, which is the old one again: a
    worker that has switched answers what was sent before. It counts only if its answer ended before that move."""
    champion = _champion(move)
    nexts = [each.unix_ms for each in moves if each.epoch > move.epoch and _champion(each) != champion]
    until = min(nexts, default=math.inf)
    old = [
        answer.asked_unix_ms - move.unix_ms
        for answer in answers
        if move.unix_ms <= answer.asked_unix_ms and answer.ended_unix_ms < until
        if answer.lane == CHAMPION and answer.response.revision not in {None, champion}
    ]
    return max(old, default=0.0) / 1_000


def _champion(move: Move) -> str | None:
    return move.state.aliases.get(CHAMPION)


def diverted(answers: Sequence[Answered], rule: Rule) -> list[Answered]:
    """Return the answers of other lanes to conversations on the canary's side: its worker had no time for them."""
    on_side = (rule.lane(SessionKey("demo", answer.session)) == "canary" for answer in answers)
    return [answer for answer, is_on in zip(answers, on_side, strict=True) if is_on and answer.lane != "canary"]


def by_session(answers: Sequence[Answered]) -> dict[str, list[Answered]]:
    """Return each conversation's answers, in their order."""
    found = defaultdict[str, list[Answered]](list)
    for answer in answers:
        found[answer.session].append(answer)
    return dict(found)
