"""`replyline bench traffic`: send the simulator's traces to a running system."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import Planned, most_at_once
from ops.lab.load.bench import answered_by, faq_questions, open_files, target, tell
from ops.lab.load.figures.groups import reports
from ops.lab.load.figures.report import LoadParameters, summarise
from ops.lab.load.options import TrafficOptions
from ops.lab.load.pages.load import LoadFacts
from ops.lab.texts.prompts import question
from ops.measure.runner import progress_bar
from ops.traces.drawn import KINDS, traffic
from ops.traces.mixes import Promise
from ops.traces.trace import Trace
from shared.errors import SettingsError
from shared.settings import Settings
from shared.wire.messages import ResponseCreate

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
# In these traces the lengths of questions matter, and the FAQ's questions are all short.
_OF_LENGTHS: Final = frozenset({"bimodal", "heavy", "spread"})


def check(options: TrafficOptions) -> None:
    """Check the options. Raises `SettingsError` with a one-line message."""
    if options.name not in KINDS:
        raise SettingsError(f"{options.name}: unknown traffic; use one of {', '.join(KINDS)}")
    if options.rate * options.seconds * KINDS[options.name].pattern(options.seconds * 1e3).peak > _MOST_REQUESTS:
        asked = f"--rate {options.rate:g} for {options.seconds:g} s"
        raise SettingsError(f"{asked}: may be more than {_MOST_REQUESTS:,} requests")


async def bench_traffic(options: TrafficOptions, settings: Settings, command: str, console: Console) -> None:
    """Run the traffic. Raises `SettingsError`, `ConnectFailed`, `ServiceError`."""
    made_up = options.name in _OF_LENGTHS if options.made_up is None else options.made_up
    faq = [] if made_up else faq_questions(settings.faq.path)
    async with target(options.url, options.broker, settings, console) as (url, facts):
        load = LoadRun(url, token=options.token, name="traffic")
        limits = await load.look()
        promise = Promise(first_token_ms=limits.first_token_ms, deadline_ms=limits.deadline_ms)
        trace = traffic(
            options.name, per_s=options.rate, seconds=options.seconds, seed=options.seed, promise=promise
        )  # fmt: skip
        plan = planned(trace, faq)
        if not plan:
            raise SettingsError(f"--rate {options.rate:g} for {options.seconds:g} s: no requests; increase either")
        connections = most_at_once(plan)
        open_files(connections)
        console.print(
            f"{len(plan)} requests over {options.seconds:g} s, at most {connections} conversations at the same time"
        )
        with progress_bar(console, "answers", len(plan)) as progress:
            outcomes = await load.run(plan, progress)
    told = LoadFacts(
        title=f"Traffic: {options.name}",
        told=f"{len(plan):,} questions in {options.seconds:g} s: {WHO[options.name]}.",
        outcomes=outcomes,
        report=summarise(outcomes),
        run=_run_of(options, command, connections, made_up=made_up),
        environment=answered_by(facts, outcomes),
        grouped_by="phase",
        groups=reports(phases(trace, outcomes)),
        first_token_ms=limits.first_token_ms,
        deadline_ms=limits.deadline_ms,
        settings=system_settings(settings) if options.url is None else {},
        surges=[(start / 1_000, end / 1_000) for start, end in trace.surges],
    )
    tell(told, options.json_path, options.html_path, console)


def _run_of(options: TrafficOptions, command: str, connections: int, *, made_up: bool) -> LoadParameters:
    return LoadParameters(
        command=command,
        loop="open",
        rate=options.rate,
        arrivals=options.name,
        connections=connections,
        seed=options.seed,
        input=f"{options.name}; {'made-up words' if made_up else 'questions of the FAQ'}",
    )


def system_settings(settings: Settings) -> dict[str, str]:
    """Return the settings that affect the result of a system that the bench starts."""
    worker = settings.worker
    return {
        "worker": f"{worker.slots or 'as many as fit'} slots of {worker.max_length} tokens, "
        f"{worker.prefill_chunk_tokens} prompt tokens per step at most, {worker.threads or 'as many as cores'} threads",
    }


def planned(trace: Trace, faq: Sequence[str] = ()) -> list[Planned]:
    """Plan the trace's requests.

    Each asks one of the FAQ's questions in turn, or without `faq` a generated question with as many words as its prompt
    has tokens, and limits the answer to its length in the trace. A request without a conversation gets its own.
    """
    return [
        Planned(
            at_s=one.arrival_ms / 1_000,
            session=one.session or f"r{number}",
            deadline_ms=one.deadline_ms,
            request=ResponseCreate(
                event_id=f"traffic-{number}",
                input=faq[(trace.seed + number) % len(faq)]
                if faq
                else question(one.prompt_tokens, trace.seed * _MOST_REQUESTS + number),
                max_output_tokens=one.output_tokens,
                temperature=0.0,
                deadline_ms=one.deadline_ms,
                first_token_ms=one.first_token_ms,
            ),
        )
        for number, one in enumerate(trace.requests)
    ]


def phases(trace: Trace, outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return the outcomes during surges, and the others; all of them for a trace without surges."""
    if not trace.surges:
        return {"all": list(outcomes)}
    found: dict[str, list[Outcome]] = {"at other times": [], "in the surge": []}
    for one, outcome in zip(trace.requests, outcomes, strict=True):
        surging = any(start <= one.arrival_ms < end for start, end in trace.surges)
        found["in the surge" if surging else "at other times"].append(outcome)
    return found
