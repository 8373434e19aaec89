"""`replyline profile`: where an engine call's time goes, layer by layer, by the runtime's own profiler."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from ops.measure.environment import environment
from ops.measure.runner import check_writable, write_json
from ops.model.profile.calls import PHASES, Phase, PhaseProfile, Row, summarise
from ops.model.profile.picture import flame_graph
from ops.model.profile.recorders import Recorder, open_recorder
from shared.errors import SettingsError
from shared.settings import Settings
from workers.engine import DecodeRow, PrefillChunk, Sampling

_WARM: Final = 2
_TOKEN: Final = 3  # every vocabulary has it; what the tokens are plays no part in what they take
_GREEDY: Final = Sampling()
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """`batch` prompts of `prompt_tokens` are prefilled together, `prefills` times, then decoded for `steps`."""

    batch: int
    prompt_tokens: int
    prefills: int
    steps: int
    svg: Path | None = None
    json_path: Path | None = None

    @property
    def max_length(self) -> int:
        return max(64, self.prompt_tokens + _WARM + self.steps + 1)


def profile(settings: Settings, options: ProfileOptions, console: Console) -> None:
    """Print the tables, write the picture and the JSON. Raises `SettingsError`, `ModelError`, `EngineError`."""
    check_writable(options.json_path)
    if options.svg is not None and not options.svg.parent.is_dir():
        raise SettingsError(f"--svg {options.svg}: {options.svg.parent} is no directory; make it first")
    with tempfile.TemporaryDirectory(prefix="replyline-profile-") as scratch:
        recorder = open_recorder(settings, Path(scratch))
        info = recorder.engine.info
        caption = (
            f"{info.name}, {info.model} {info.precision}: batch {options.batch}, prompts of {options.prompt_tokens} "
            f"tokens, {options.steps} steps"
        )
        call_ms = run(recorder, options)
        calls = recorder.finish()
    profiles = [summarise(phase, calls, call_ms[phase]) for phase in PHASES]
    console.print(caption, highlight=False)
    for each in profiles:
        _print(each, console)
    if options.svg is not None:
        options.svg.write_text(flame_graph(profiles, calls, caption))
    if options.json_path is not None:
        about = environment(engine=info.name, broker="unknown")
        write_json(options.json_path, {"caption": caption, "phases": profiles, "environment": about})


def run(recorder: Recorder, options: ProfileOptions) -> dict[Phase, list[float]]:
    """Prefill and decode, the first calls of each unmeasured; what the others took, ms."""
    engine = recorder.engine
    if options.batch > engine.info.max_prefill_rows:
        raise SettingsError(f"--batch {options.batch}: this engine prefills {engine.info.max_prefill_rows} together")
    chunks = [
        PrefillChunk(slot=slot, past=0, token_ids=[_TOKEN] * options.prompt_tokens, sampling=_GREEDY)
        for slot in range(options.batch)
    ]
    call_ms: dict[Phase, list[float]] = {"prefill": [], "decode": []}
    for number in range(_WARM + options.prefills):
        counted: Phase | None = "prefill" if number >= _WARM else None
        ms = recorder.measure(counted, lambda: engine.prefill(chunks))
        if counted:
            call_ms[counted].append(ms)
    for number in range(_WARM + options.steps):
        rows = [
            DecodeRow(slot=slot, past=options.prompt_tokens + number, token_id=_TOKEN, sampling=_GREEDY)
            for slot in range(options.batch)
        ]
        counted = "decode" if number >= _WARM else None
        ms = recorder.measure(counted, lambda rows=rows: engine.decode(rows))  # type: ignore[misc]
        if counted:
            call_ms[counted].append(ms)
    return call_ms


def _print(each: PhaseProfile, console: Console) -> None:
    outside = each.call_ms - each.operators_ms
    console.print(
        f"\n[bold]{each.phase}[/bold]: {each.call_ms:.2f} ms a call (median of {each.engine_calls}), "
        f"{each.operators_ms:.2f} in operators, {outside:.2f} outside them",
        highlight=False,
    )
    for title, rows in (("operator", each.by_operator), ("part", each.by_part), ("layer", each.by_layer)):
        if len(rows) > 1:
            console.print(_table(title, rows))


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, min_width=28)
    for name in ("ms", "share", "calls"):
        table.add_column(name, justify="right")
    shown = rows if title == "layer" else rows[:_SHOWN]
    for row in shown:
        table.add_row(row.name, f"{row.ms:.3f}", f"{row.share:.1%}", f"{row.calls:g}")
    if len(shown) < len(rows):
        rest = rows[len(shown) :]
        table.add_row(
            f"{len(rest)} others", f"{sum(row.ms for row in rest):.3f}", f"{sum(row.share for row in rest):.1%}"
        )
    return table
