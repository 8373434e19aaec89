"""`replyline bench ladder`: compare right answers in time with and without the ladder, at multiples of the champion's
load.

One system on this machine serves both: a champion's worker and a light one share its cores. In the runs without the
ladder it is held at the champion, as an operator can do.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import Console

from ops.evaluation.judging.judge import Given, judge
from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions
from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import Planned, plan_of
from ops.lab.load.bench import open_files
from ops.lab.load.options import LadderOptions
from ops.measure.arrivals import schedule
from ops.measure.bootstrap import mean_of, ratio
from ops.measure.environment import environment
from ops.measure.runner import markdown, write_json
from ops.stack.own_services import own_kafka
from ops.stack.system import System
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.kafka import Producer
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.versions.log import VersionsLog
from shared.versions.state import Move, Rung
from shared.wire.lanes import CHAMPION
from shared.wire.messages import ResponseCreate

_CLIENTS: Final = 8
_CALIBRATION: Final = 32
_PATIENCE_MS: Final = 60_000
_MAX_OUTPUT_TOKENS: Final = 96
_SETTLE_S: Final = 3.0
_TITLES: Final = ("load", "ladder", "asked", "by champion, light, FAQ", "right by a model in time", "right in time")


class LadderRun(Struct, frozen=True, kw_only=True):
    """One run. `right` says of each request whether its answer came in time and was right; `right_by_model` counts only
    the answers of a model."""

    load: float
    ladder: bool
    rate: float
    by_lane: dict[str, int]
    right_by_model: list[int]
    right: list[int]


@dataclass(frozen=True, slots=True)
class _Bench:
    url: str
    system: System
    options: LadderOptions
    questions: Sequence[Question]

    async def hold(self, rung: Rung | None) -> None:
        """Hold the ladder at a rung, as an operator does; None lets it go."""
        kafka = own_kafka(self.system.settings.kafka, self.system.bootstrap)
        producer, log = Producer(kafka, client_id="bench"), VersionsLog.of(kafka, client_id="bench")
        await producer.start()
        try:
            await log.start()
            before = log.registry.state
            state = msgspec.structs.replace(before, epoch=before.epoch + 1, rung=rung)
            move = Move(state=state, author="bench", reason="with the ladder and without", unix_ms=int(wire_unix_ms()))
            await log.append(producer, kafka.topics.versions, move)
        finally:
            await log.stop()
            await producer.stop()
        await asyncio.sleep(_SETTLE_S)

    async def capacity(self) -> float:
        """Return the champion's answers a second while it always has something to do."""
        plan, _ = await self._plan(_CALIBRATION, seed=-1, rate=None)
        patient = [replace(one, request=_patient(one.request), deadline_ms=_PATIENCE_MS) for one in plan]
        outcomes = await LoadRun(self.url).run(patient, clients=_CLIENTS)
        ends = [outcome.done_s for outcome in outcomes if outcome.by_model and outcome.done_s is not None]
        return len(ends) / (max(ends) - min(outcome.scheduled_s for outcome in outcomes))

    async def run(self, load: float, rate: float, *, ladder: bool, seed: int) -> LadderRun:
        await self.hold(None if ladder else CHAMPION)
        plan, asked = await self._plan(round(rate * self.options.seconds), seed=seed, rate=rate)
        open_files(len(plan))
        outcomes = await LoadRun(self.url).run(plan)
        right = [is_right(question, outcome) for question, outcome in zip(asked, outcomes, strict=True)]
        return LadderRun(
            load=load,
            ladder=ladder,
            rate=rate,
            by_lane=dict(Counter((one.lane or CHAMPION) if one.by_model else "faq" for one in outcomes)),
            right_by_model=[int(ok and one.by_model) for ok, one in zip(right, outcomes, strict=True)],
            right=[int(ok) for ok in right],
        )

    async def _plan(self, count: int, *, seed: int, rate: float | None) -> tuple[list[Planned], list[Question]]:
        """Plan `count` questions, each in a new conversation. Runs with the same seed have the same questions."""
        asked = [self.questions[(seed * 31 + number) % len(self.questions)] for number in range(count)]
        times = None if rate is None else schedule("poisson", rate=rate, count=count, seed=seed)
        limits = await LoadRun(self.url).look()
        texts = [question.question for question in asked]
        return plan_of(texts, limits, max_output_tokens=_MAX_OUTPUT_TOKENS, times=times, alone=True), asked


async def bench_ladder(options: LadderOptions, settings: Settings, command: str, console: Console) -> None:
    """Measure, print and write. Raises `SettingsError`, `ConnectFailed`, `ServiceError`."""
    runs: list[LadderRun] = []
    async with _system(options, settings) as bench:
        await bench.hold(CHAMPION)
        rate = options.rate or await bench.capacity()
        console.print(f"1 x is {rate:.2f} questions a second: what the champion answers when it always has some to do")
        for number in range(options.rounds):
            for load in options.loads or [1.0, 2.0, 3.0]:
                for ladder in (False, True) if number % 2 == 0 else (True, False):
                    runs.append(await bench.run(load, rate * load, ladder=ladder, seed=options.seed + number))
                    console.print(_row(runs[-1]), highlight=False)
    print(markdown(_TITLES, [_row(run) for run in runs]))
    for load in sorted({run.load for run in runs}):
        for figure in ("right_by_model", "right"):
            print(f"{load:g} x, {figure}: {told(runs, load, figure)}")
    facts = environment(engine=f"{options.full.name}, light {options.light.name}", broker="embedded")
    write_json(options.json_path, {"command": command, "rate": rate, "runs": runs, "environment": facts})


@asynccontextmanager
async def _system(options: LadderOptions, settings: Settings) -> AsyncIterator[_Bench]:
    env = {"MODEL__DIR": str(options.full.resolve())}
    entries = read_entries(settings.faq.path or PACKAGED_PATH)
    questions = [
        question
        for question in read_questions(PACKAGED_QUESTIONS, entries)
        if question.language == "en" and question.answerable and not question.history
    ]
    with System(settings=settings, broker="embedded", env=env, lanes=["light"]) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        await system.start_worker()
        await system.start_worker(env={"WORKER__LANE": "light", "MODEL__DIR": str(options.light.resolve())})
        yield _Bench(url, system, options, questions)


def _patient(request: ResponseCreate) -> ResponseCreate:
    """Return the request with a deadline so late that no answer is refused."""
    return msgspec.structs.replace(request, deadline_ms=_PATIENCE_MS, first_token_ms=_PATIENCE_MS)


def is_right(question: Question, outcome: Outcome) -> bool:
    """Return whether an answer came in time and has the facts that its question asks for."""
    e2e_ms = outcome.e2e_ms
    if outcome.error is not None or e2e_ms is None or e2e_ms > outcome.deadline_ms:
        return False
    given = Given(source=outcome.source, text=outcome.text, grounding=outcome.grounding)
    return judge(question, given).right


def _row(run: LadderRun) -> tuple[str | int, ...]:
    lanes = ", ".join(str(run.by_lane.get(name, 0)) for name in (CHAMPION, "light", "faq"))
    side = "with" if run.ladder else "without"
    return f"{run.load:g} x", side, len(run.right), lanes, sum(run.right_by_model), sum(run.right)


def told(runs: Sequence[LadderRun], load: float, figure: str) -> str:
    """Return the ratio of the runs with the ladder to those without, with its confidence."""
    without, with_ladder = (
        [one for run in runs if (run.load, run.ladder) == (load, side) for one in getattr(run, figure)]
        for side in (False, True)
    )
    found = ratio(without, with_ladder, mean_of)
    return "nothing right without" if found is None else f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
