"""`replyline replay`: ask what was recorded again, through a gateway, at its own times."""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from ops.client.outcome import Outcome
from ops.load.bench import print_report
from ops.load.figures.groups import reports, rows_of
from ops.load.figures.report import LoadReport, Run, as_json, summarise
from ops.load.pages.load import LoadFacts, load_page
from ops.load.planned import Planned, most_at_once
from ops.load.sessions import SessionLoad
from ops.measure.environment import environment
from ops.measure.runner import Cell, check_writable, markdown, progress_bar, write_html, write_json
from ops.measure.usage import raise_file_limit
from ops.recording.plan import planned
from ops.traces.recording import Recording, read_recording
from shared.errors import SettingsError
from shared.wire.messages import BY_MODEL
from shared.wire.topics import BUCKETS

_SPARE_FILES: Final = 256
_MOST_SPEED: Final = 1_000.0
_LEAST_SPEED: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    path: Path
    url: str
    token: str | None
    speed: float
    json_path: Path | None
    html_path: Path | None = None

    def check(self) -> None:
        """Raises `SettingsError`."""
        if not _LEAST_SPEED <= self.speed <= _MOST_SPEED:
            raise SettingsError(
                f"--speed {self.speed:g}: must be {_LEAST_SPEED:g} to {_MOST_SPEED:g}; 1 is as recorded"
            )
        check_writable(self.json_path)
        check_writable(self.html_path, "--html")


async def replay(options: ReplayOptions, command: str, console: Console) -> None:
    """Raises `SettingsError`, `ConnectFailed`."""
    options.check()
    recording = read_recording(options.path)
    if recording.broken_off:
        console.print(recording.broken_off, soft_wrap=True, highlight=False)
    plan = planned(recording, speed=options.speed)
    connections = most_at_once(plan)
    raise_file_limit(connections + _SPARE_FILES)
    run_name = secrets.token_hex(4)
    load = SessionLoad(options.url, token=options.token, session_id=lambda session: f"replay-{run_name}-{session}")
    await load.look()
    facts = environment(engine="unknown (--url)", broker="unknown")
    console.print(
        f"{len(plan)} requests of {recording.num_sessions} conversations over {plan[-1].at_s:.1f} s, "
        f"at most {connections} at once",
        highlight=False,
        soft_wrap=True,
    )
    with progress_bar(console, "answers", len(plan)) as progress:
        outcomes = await load.run(plan, progress)
    models = {outcome.model for outcome in outcomes if outcome.model}
    facts = msgspec.structs.replace(facts, engine=", ".join(sorted(models)) or "unknown (--url)")
    report = summarise(outcomes)
    run = _run(options, command, plan, connections)
    print_report(report, Console(), within="their own deadlines")
    buckets = by_bucket(plan, outcomes)
    more = {"by the model when recorded": model_then(recording)}
    print(markdown(*rows_of("bucket", buckets, more)))
    write_json(options.json_path, {**as_json(report, run, facts, outcomes), "by_bucket": buckets})
    if options.html_path is not None:
        told = LoadFacts(
            title="Recorded traffic, asked again",
            told=_told(options, recording, plan),
            outcomes=outcomes,
            report=report,
            run=run,
            environment=facts,
            grouped_by="bucket",
            groups=buckets,
            more=more,
        )
        write_html(options.html_path, load_page(told), console)


def _told(options: ReplayOptions, recording: Recording, plan: Sequence[Planned]) -> str:
    broken_off = f" {recording.broken_off}." if recording.broken_off else ""
    return (
        f"{len(plan):,} questions of {recording.num_sessions:,} conversations over {plan[-1].at_s:,.1f} s, as recorded "
        f"in {options.path.name}: at {options.speed:g} times its pace, with the deadlines of then.{broken_off}"
    )


def by_bucket(plan: Sequence[Planned], outcomes: Sequence[Outcome]) -> dict[str, LoadReport]:
    """Of those buckets that were asked of."""
    asked = list(zip(plan, outcomes, strict=True))
    return reports({bucket: [outcome for one, outcome in asked if one.bucket == bucket] for bucket in BUCKETS})


def model_then(recording: Recording) -> dict[str, Cell]:
    """By bucket: how many the model had answered when they were recorded."""
    found = Counter(
        recording.asked[number].bucket for number, answer in recording.answered.items() if answer.source in BY_MODEL
    )
    return {bucket: found[bucket] for bucket in BUCKETS}


def _run(options: ReplayOptions, command: str, plan: Sequence[Planned], connections: int) -> Run:
    gaps = [later.at_s - earlier.at_s for earlier, later in pairwise(plan)]
    return Run(
        command=command,
        loop="open",
        clients=None,
        rate=round(len(gaps) / sum(gaps), 3) if sum(gaps) > 0 else None,
        arrivals="recorded",
        connections=connections,
        warmup=0,
        seed=0,
        input=f"{options.path.name} at {options.speed:g} times its pace",
        max_output_tokens=None,
        deadline_ms=None,
    )
