"""`replyline bench engines`: every engine that this machine can run, beside the peers that are there.

Each engine has a process of its own, one after the other; a round runs all of them, and what the machine itself can do
is measured at the start of each.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import msgspec
from rich.console import Console

from ops.measure.environment import environment
from ops.measure.runner import check_writable, write_json
from ops.stack.processes import ServiceError
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.settings import PREFIX, Settings
from tests.bench.engines import llama as engine_llama
from tests.bench.engines.cells import ENGINES, NotRun, Peers, Planned, plan
from tests.bench.engines.checkpoint import hugging_face_folder
from tests.bench.engines.plot import plot_of
from tests.bench.engines.process import run_to_end
from tests.bench.engines.roofline import Limits
from tests.bench.engines.rows import Measured, Round, Sizes, details_of, ratios_of, rows_of
from tests.bench.engines.table import limits_text, ratio_table, row_table, verdicts

_T = TypeVar("_T")

_MOST_BATCH: Final = 512
_MOST_TOKENS: Final = 4_096
_MOST_ROUNDS: Final = 20
_SLOT_MULTIPLE: Final = 64
_TIMEOUT_S: Final = 1_800.0
_TABLE_WIDTH: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesOptions:
    engines: tuple[str, ...]
    batches: tuple[int, ...]
    sizes: Sizes
    rounds: int
    peers: Peers
    json_path: Path | None
    plot_path: Path | None

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        faults = [f"--engines {name}: none of {', '.join(ENGINES)}" for name in self.engines if name not in ENGINES]
        if not self.engines:
            faults.append(f"--engines: name some of {', '.join(ENGINES)}")
        for name, value, least, most in (
            *(("--batches", batch, 1, _MOST_BATCH) for batch in self.batches),
            ("--prompt-tokens", self.sizes.prompt_tokens, 1, _MOST_TOKENS),
            ("--new-tokens", self.sizes.new_tokens, 2, _MOST_TOKENS),
            ("--rounds", self.rounds, 1, _MOST_ROUNDS),
        ):
            if not least <= value <= most:
                faults.append(f"{name} {value}: must be {least} to {most}")
        for name, path in (
            ("--llama-bench", self.peers.llama_bench),
            ("--gguf", self.peers.gguf),
            ("--source", self.peers.source),
        ):
            if path is not None and not path.exists():
                faults.append(f"{name} {path}: no such file")
        if faults:
            raise SettingsError("\n".join(faults))
        check_writable(self.json_path)
        if self.plot_path is not None and not self.plot_path.parent.is_dir():
            raise SettingsError(f"--plot {self.plot_path}: {self.plot_path.parent} is no directory; make it first")


def parse_batches(text: str) -> tuple[int, ...]:
    """Ascending, each once: a process's peak memory is told batch by batch. Raises `SettingsError`."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise SettingsError(f"--batches {text}: write numbers with commas between them: 1,4,8") from None


async def bench_engines(settings: Settings, options: EnginesOptions, command: str, console: Console) -> None:
    threads = settings.worker.threads or os.cpu_count() or 1
    facts = environment(engine=f"engines of {settings.model.dir.name}", broker="unknown")
    planned, not_run = plan(options.engines, settings, options.peers, threads)
    for missing in not_run:
        console.print(f"NOT RUN: {missing.engine}: {missing.reason}", style="bold", markup=False)
    if not planned:
        raise SettingsError(f"--engines {','.join(options.engines)}: none of them can run here")
    bench = _Bench(settings=settings, options=options, threads=threads, console=console)
    with TemporaryDirectory(prefix="replyline-bench-") as workshop:
        rounds = await bench.rounds([_given_folder(one, Path(workshop)) for one in planned])
    not_run += bench.failed.values()
    rows = rows_of(rounds, options.sizes)
    ratios = ratios_of(rounds, options.sizes)
    shown = Console(width=_TABLE_WIDTH)
    shown.print(row_table(rows))
    if ratios:
        shown.print(ratio_table(ratios))
    for line in (*limits_text(rounds), *verdicts(rows, ratios)):
        print(line)
    for missing in not_run:
        print(f"NOT RUN: {missing.engine}: {missing.reason}")
    head = {
        "command": command,
        "sizes": options.sizes,
        "rounds": options.rounds,
        "threads": threads,
        "limits": [one.limits for one in rounds],
        "environment": facts,
    }
    details = details_of(rounds, options.sizes)
    write_json(
        options.json_path, {"head": head, "rows": rows, "details": details, "ratios": ratios, "not_run": not_run}
    )
    if options.plot_path is not None:
        options.plot_path.write_text(plot_of(rows, options.sizes), encoding="utf-8")


def _given_folder(planned: Planned, workshop: Path) -> Planned:
    """transformers is told a Hugging Face folder, made once of a GGUF file. Raises `ModelError`."""
    if planned.source is None:
        return planned
    folder = hugging_face_folder(planned.source, workshop)
    return replace(planned, argv=(*planned.argv, "--source", str(folder.resolve())))


@dataclass(slots=True, kw_only=True)
class _Bench:
    """Runs the processes of a round. An engine that fails is told at once, and is in no other round."""

    settings: Settings
    options: EnginesOptions
    threads: int
    console: Console
    failed: dict[str, NotRun] = field(default_factory=dict)

    async def rounds(self, planned: Sequence[Planned]) -> list[Round]:
        """Raises `ServiceError` where nothing could be measured."""
        found: list[dict[str, Measured]] = []
        limits: list[dict[str, Limits]] = []
        for number in range(1, self.options.rounds + 1):
            self.console.print(f"round {number} of {self.options.rounds}: what the machine can do")
            limits.append(await self._limits(planned))
            found.append({})
            for one in planned:
                if one.name not in self.failed:
                    self.console.print(f"round {number} of {self.options.rounds}: {one.name}", markup=False)
                    await self._measure(one, found[-1])
        whole = [[measured for name, measured in one.items() if name not in self.failed] for one in found]
        if not whole[0]:
            raise ServiceError("no engine could be measured")
        return [Round(limits=here, measured=one) for here, one in zip(limits, whole, strict=True)]

    async def _measure(self, planned: Planned, found: dict[str, Measured]) -> None:
        try:
            found[planned.name] = await (self._llama(planned) if planned.gguf is not None else self._python(planned))
        except ServiceError as error:
            self.failed[planned.name] = NotRun(engine=planned.name, reason=str(error))
            self.console.print(f"FAILED: {planned.name}: {error}", style="bold", markup=False)

    async def _python(self, planned: Planned) -> Measured:
        sizes = self.options.sizes
        longest = sizes.prompt_tokens + sizes.new_tokens
        env = {
            f"{PREFIX}WORKER__SLOTS": str(max(self.options.batches)),
            f"{PREFIX}WORKER__MAX_LENGTH": str(-(-longest // _SLOT_MULTIPLE) * _SLOT_MULTIPLE),
            f"{PREFIX}WORKER__THREADS": str(self.threads),
            f"{PREFIX}MODEL__DIR": str(self.settings.model.dir),
            **planned.env,
        }
        given = ["--batches", ",".join(map(str, self.options.batches))]
        given += ["--prompt-tokens", str(sizes.prompt_tokens), "--new-tokens", str(sizes.new_tokens)]
        ended = await run_to_end([*planned.argv, *given], env=env, timeout_s=_TIMEOUT_S)
        return _decoded(ended.lines[-1], Measured)

    async def _llama(self, planned: Planned) -> Measured:
        assert planned.gguf is not None
        given = engine_llama.arguments(planned.gguf, self.threads, self.options.batches, self.options.sizes)
        ended = await run_to_end([*planned.argv, *given], env={}, timeout_s=_TIMEOUT_S)
        return engine_llama.measured(
            engine_llama.parse(ended.lines),
            ModelFolder.open(self.settings.model.dir).manifest,
            planned.gguf,
            runtime=Path(planned.argv[0]).name,
            rss_mib=ended.rss_mib,
        )

    async def _limits(self, planned: Sequence[Planned]) -> dict[str, Limits]:
        """By this interpreter; what only torch can measure by the one that has it, where that is another."""
        limits = await self._limits_by(sys.executable)
        for python in {one.argv[0] for one in planned if one.gguf is None} - {sys.executable}:
            for device, theirs in (await self._limits_by(python)).items():
                ours = limits.get(device, theirs)
                limits[device] = msgspec.structs.replace(ours, gflop_s={**theirs.gflop_s, **ours.gflop_s})
        return limits

    async def _limits_by(self, python: str) -> dict[str, Limits]:
        argv = [python, "-m", "tests.bench.engines.limits", "--threads", str(self.threads)]
        ended = await run_to_end(argv, env={}, timeout_s=_TIMEOUT_S)
        return _decoded(ended.lines[-1], dict[str, Limits])


def _decoded(line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise ServiceError(f"said no result: {line.decode(errors='replace')}") from error
