"""`replyline bench traffic`: customers as the simulator's traces have them, asking a running system."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from ops.client.outcome import Outcome
from ops.load.bench import print_report, target
from ops.load.figures.groups import reports, rows_of
from ops.load.figures.report import Run, as_json, summarise
from ops.load.pages.load import LoadFacts, load_page
from ops.load.planned import Planned, most_at_once
from ops.load.sessions import SessionLoad
from ops.load.system import Broker
from ops.measure.environment import environment
from ops.measure.runner import check_writable, markdown, progress_bar, write_html, write_json
from ops.measure.usage import raise_file_limit
from ops.texts.prompts import question
from ops.traces.drawn import KINDS, traffic
from ops.traces.mixes import Promise
from ops.traces.trace import Trace
from shared.errors import SettingsError
from shared.settings import Settings
from shared.wire.messages import ResponseCreate

_SPARE_FILES: Final = 256
_MOST_RATE: Final = 100_000.0
_MOST_SECONDS: Final = 86_400.0
_MOST_REQUESTS: Final = 2_000_000
WHO: Final = {
    "poisson": "a shop's customers, who come independently of each other",
    "bimodal": "four customers in five with a short question and deadline, the fifth with a long one and a longer",
    "burst": "a shop's customers, five times as many for ten seconds of each minute",
    "surge": "a shop's customers, nine times as many (+800 %) in the middle",
    "diurnal": "a shop's customers over a day in short, few at night and many at noon",
    "heavy": "customers of whom some ask and are answered at very great length",
    "promotion": "a shop's customers at a promotion, five times as many within ten seconds",
    "sessions": "a shop's customers in conversations, with time to think between their questions",
    "spread": "customers whose questions are of all lengths alike, from 30 to 400 tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """`rate`: requests a second where the trace says 1.0."""

    name: str
    rate: float
    seconds: float
    url: str | None
    token: str | None
    broker: Broker
    seed: int
    json_path: Path | None
    html_path: Path | None = None

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        faults = []
        if self.name not in KINDS:
            faults.append(f"{self.name}: no traffic is called so; there are {', '.join(KINDS)}")
        if not 0 < self.rate <= _MOST_RATE:
            faults.append(f"--rate {self.rate:g}: must be above 0 requests a second, {_MOST_RATE:g} at most")
        if not 1 <= self.seconds <= _MOST_SECONDS:
            faults.append(f"--seconds {self.seconds:g}: must be 1 to {_MOST_SECONDS:g}")
        if not faults and self.rate * self.seconds * KINDS[self.name].pattern(self.seconds * 1e3).peak > _MOST_REQUESTS:
            faults.append(f"--rate {self.rate:g} for {self.seconds:g} s: may be more than {_MOST_REQUESTS:,} requests")
        if faults:
            raise SettingsError("\n".join(faults))
        check_writable(self.json_path)
        check_writable(self.html_path, "--html")


async def bench_traffic(options: TrafficOptions, settings: Settings, command: str, console: Console) -> None:
    """Raises `SettingsError`, `ConnectFailed`, `ServiceError`."""
    options.check()
    async with target(options.url, options.broker, settings, console) as (url, engine, broker):
        run_name = secrets.token_hex(4)  # what is asked twice in two minutes is answered once
        load = SessionLoad(url, token=options.token, session_id=lambda name: f"traffic-{run_name}-{name}")
        limits = await load.look()
        promise = Promise(first_token_ms=limits.first_token_ms, deadline_ms=limits.deadline_ms)
        trace = traffic(
            options.name, per_s=options.rate, seconds=options.seconds, seed=options.seed, promise=promise
        )  # fmt: skip
        plan = planned(trace)
        if not plan:
            raise SettingsError(f"--rate {options.rate:g} for {options.seconds:g} s: nobody asks; give more of either")
        connections = most_at_once(plan)
        raise_file_limit(connections + _SPARE_FILES)
        facts = environment(engine=engine, broker=broker)
        console.print(f"{len(plan)} requests over {options.seconds:g} s, at most {connections} conversations at once")
        with progress_bar(console, "answers", len(plan)) as progress:
            outcomes = await load.run(plan, progress)
    if options.url is not None:
        models = {outcome.model for outcome in outcomes if outcome.model}
        facts = msgspec.structs.replace(facts, engine=", ".join(sorted(models)) or engine)
    report = summarise(outcomes)
    by_phase = reports(phases(trace, outcomes))
    print_report(report, Console(), within="their deadlines")
    print(markdown(*rows_of("when", by_phase)))
    run = Run(
        command=command,
        loop="open",
        rate=options.rate,
        arrivals=options.name,
        connections=connections,
        seed=options.seed,
        input=options.name,
    )
    write_json(options.json_path, {**as_json(report, run, facts, outcomes), "by_phase": by_phase})
    if options.html_path is not None:
        told = LoadFacts(
            title=f"Traffic: {options.name}",
            told=f"{len(plan):,} questions in {options.seconds:g} s: {WHO[options.name]}.",
            outcomes=outcomes,
            report=report,
            run=run,
            environment=facts,
            grouped_by="phase",
            groups=by_phase,
            first_token_ms=limits.first_token_ms,
            deadline_ms=limits.deadline_ms,
            settings=system_settings(settings) if options.url is None else {},
            surges=[(start / 1_000, end / 1_000) for start, end in trace.surges],
        )
        write_html(options.html_path, load_page(told), console)


def system_settings(settings: Settings) -> dict[str, str]:
    """Those of a system of the bench's own that a result depends on."""
    worker = settings.worker
    return {
        "worker": f"{worker.slots} slots of {worker.max_length} tokens, "
        f"{worker.prefill_chunk_tokens} prompt tokens a step at most, {worker.threads or 'as many as cores'} threads",
    }


def planned(trace: Trace) -> list[Planned]:
    """Its requests, each with a question of as many words as the trace's prompt has tokens, and an answer of the
    trace's length at most. Who belongs to no conversation has one alone."""
    return [
        Planned(
            at_s=one.arrival_ms / 1_000,
            session=one.session or f"r{number}",
            bucket=one.bucket,
            deadline_ms=one.deadline_ms,
            request=ResponseCreate(
                event_id=f"traffic-{number}",
                input=question(one.prompt_tokens, trace.seed * _MOST_REQUESTS + number),
                max_output_tokens=one.output_tokens,
                temperature=0.0,
                deadline_ms=one.deadline_ms,
                first_token_ms=one.first_token_ms,
            ),
        )
        for number, one in enumerate(trace.requests)
    ]


def phases(trace: Trace, outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Those asked while more came than at other times, and the others; of a trace without such times, all."""
    if not trace.surges:
        return {"all": list(outcomes)}
    found: dict[str, list[Outcome]] = {"at other times": [], "in the surge": []}
    for one, outcome in zip(trace.requests, outcomes, strict=True):
        surging = any(start <= one.arrival_ms < end for start, end in trace.surges)
        found["in the surge" if surging else "at other times"].append(outcome)
    return found
