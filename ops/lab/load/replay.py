"""`replyline replay`: send recorded requests again through a gateway, at their recorded times."""

from collections.abc import Callable, Sequence

from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import Planned, most_at_once
from ops.lab.load.bench import UNKNOWN, answered_by, open_files, tell
from ops.lab.load.figures.groups import reports
from ops.lab.load.figures.report import LoadParameters, LoadReport, summarise
from ops.lab.load.options import ReplayOptions
from ops.lab.load.pages.load import LoadFacts
from ops.lab.texts.prompts import question
from ops.measure.environment import environment
from ops.measure.runner import progress_bar
from ops.operate.recording.file import BYTES, RecordedRequest, Recording, read_recording
from shared.errors import SettingsError
from shared.wire.messages import ResponseCreate
from shared.wire.topics import BUCKETS


async def replay(options: ReplayOptions, command: str, console: Console) -> None:
    """Replay a recording. Raises `SettingsError`, `ConnectFailed`."""
    recording = read_recording(options.path)
    if recording.broken_off:
        console.print(recording.broken_off, soft_wrap=True, highlight=False)
    plan = planned(recording, speed=options.speed)
    run = _run(options, command, plan)
    open_files(run.connections)
    load = LoadRun(options.url, token=options.token, name="replay")
    await load.look()
    facts = environment(engine=UNKNOWN, broker="unknown")
    asked = f"{len(plan):,} questions of {recording.num_sessions:,} conversations over {plan[-1].at_s:,.1f} s"
    console.print(f"{asked}, at most {run.connections} at the same time", highlight=False, soft_wrap=True)
    with progress_bar(console, "answers", len(plan)) as progress:
        outcomes = await load.run(plan, progress)
    told = LoadFacts(
        title="Recorded traffic, asked again",
        told=f"{asked}, as recorded in {run.input}, with their original deadlines. {recording.broken_off}".rstrip(),
        outcomes=outcomes,
        report=summarise(outcomes),
        run=run,
        environment=answered_by(facts, outcomes),
        grouped_by="bucket",
        groups=by_bucket(recording, outcomes),
    )
    tell(told, options.json_path, options.html_path, console)


def planned(recording: Recording, *, speed: float) -> list[Planned]:
    """Return the requests with their spacing divided by `speed` and their original deadlines. A text that was not
    recorded is replaced by a generated one of the same length. Raises `SettingsError` without requests."""
    if not recording.asked:
        raise SettingsError(f"{recording.name}: has no requests; record while customers are asking")
    of_length = text_maker(recording.header.tokenizer)
    ordered = recording.in_order()
    start_ms = ordered[0][1].at_ms
    return [
        Planned(
            at_s=(one.at_ms - start_ms) / 1_000 / speed,
            session=one.session,
            deadline_ms=one.deadline_ms,
            request=_request(number, one, of_length),
        )
        for number, one in ordered
    ]


def text_maker(tokenizer: str) -> Callable[[int, int], str]:
    """Return a function (tokens, seed) → text of that many tokens; approximately that many for a tokenizer with
    words."""
    if tokenizer != BYTES:
        return lambda tokens, seed: question(max(1, tokens), seed)

    # No word is shorter than three letters, and words are separated by spaces.
    return lambda tokens, seed: question(1 + tokens // 4, seed)[: max(1, tokens)]


def _request(number: int, one: RecordedRequest, of_length: Callable[[int, int], str]) -> ResponseCreate:
    return ResponseCreate(
        event_id=f"replay-{number}",
        input=one.text if one.text is not None else of_length(one.input_tokens, number),
        max_output_tokens=one.max_output_tokens,
        temperature=one.temperature,
        top_p=one.top_p,
        stop=one.stop,
        deadline_ms=one.deadline_ms,
        first_token_ms=one.first_token_ms,
    )


def by_bucket(recording: Recording, outcomes: Sequence[Outcome]) -> dict[str, LoadReport]:
    """Return a report for each bucket with requests."""
    asked = list(zip(recording.in_order(), outcomes, strict=True))
    return reports({bucket: [out for (_, one), out in asked if one.bucket == bucket] for bucket in BUCKETS})


def _run(options: ReplayOptions, command: str, plan: Sequence[Planned]) -> LoadParameters:
    last_s = plan[-1].at_s
    return LoadParameters(
        command=command,
        loop="open",
        rate=round((len(plan) - 1) / last_s, 3) if last_s > 0 else None,
        arrivals="recorded",
        connections=most_at_once(plan),
        input=f"{options.path.name} at {options.speed:g} times its pace",
    )
