"""`replyline bench engines`: every engine that this machine can run, beside the peers that are there.

Each engine, with each prepared folder of the model that it computes, is a cell with a process of its own.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from rich.console import Console

from ops.stack.processes import ServiceError
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.settings import PREFIX, Settings
from tests.bench.cell import Bench, Cell, Figures, Target, standing
from tests.bench.engines import llama
from tests.bench.engines.checkpoint import hugging_face_folder
from tests.bench.engines.choice import ENGINES, Peers, Planned, plan
from tests.bench.engines.timing import Engine, Sizes
from tests.bench.process import run_to_end

PEERS: Final = ("transformers", "llama.cpp")
_MOST_BATCH: Final = 512
_SLOT_MULTIPLE: Final = 64
_LLAMA_BATCHES: Final = (1, 4, 8, 16)
_LARGEST_BATCH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesOptions:
    engines: tuple[str, ...]
    batches: tuple[int, ...]
    sizes: Sizes
    peers: Peers


def parse_engines(text: str) -> tuple[str, ...]:
    """`onnx,llama.cpp`. Raises `SettingsError`."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or set(names) - set(ENGINES):
        raise SettingsError(f"--engines {text}: name some of {', '.join(ENGINES)}")
    return names


def parse_batches(text: str) -> tuple[int, ...]:
    """Ascending, each once: a process's peak memory is told batch by batch. Raises `SettingsError`."""
    try:
        batches = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        batches = ()
    if not batches or not 1 <= batches[0] <= batches[-1] <= _MOST_BATCH:
        raise SettingsError(f"--batches {text}: write numbers from 1 to {_MOST_BATCH}, comma-separated: 1,4,8")
    return batches


async def bench_engines(settings: Settings, bench: Bench, options: EnginesOptions, console: Console) -> None:
    """Raises `SettingsError` where nothing can run, `ServiceError` where nothing could be measured."""
    threads = settings.worker.threads or os.cpu_count() or 1
    planned, not_run = plan(options.engines, settings, options.peers, threads)
    missing = [f"NOT RUN: {one.engine}: {one.reason}" for one in not_run]
    for line in missing:
        console.print(line, style="bold", markup=False)
    if not planned:
        raise SettingsError(f"--engines {','.join(options.engines)}: none of them can run here")
    names = [one.name for one in planned]
    bench = replace(bench, targets=targets_of(names, options.batches))
    running = _Running(settings=settings, options=options, threads=threads)
    with TemporaryDirectory(prefix="replyline-bench-") as workshop:
        cells = [running.cell(_given_folder(one, Path(workshop)), names) for one in planned]
        head = {"threads": threads, "sizes": options.sizes, "not_run": not_run, "engines": running.engines}
        await bench.run(cells, console, **head)
    for line in missing:
        print(line)


def bases_of(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """Every engine of ours is divided by each peer, and TensorRT by torch."""
    if name.startswith(PEERS):
        return ()
    bases = (*PEERS, "torch") if name.startswith("tensorrt") else PEERS
    return tuple(other for other in names if other.startswith(bases))


def targets_of(names: Sequence[str], batches: Sequence[int]) -> tuple[Target, ...]:
    """llama.cpp's speed on the CPU; of transformers' eight times at 64 rows and little Python on a GPU."""
    targets: list[Target] = []
    for name in names:
        for base in bases_of(name, names):
            for batch in batches:
                decode, prefill = f"decode_tok_s @{batch}", f"prefill_tok_s @{batch}"
                if name.startswith("onnx int8") and base.startswith("llama.cpp"):
                    held = [decode, prefill] if batch in _LLAMA_BATCHES else [prefill]
                    targets += [Target(cell=name, figure=one, base=base, value=1.0, at_least=True) for one in held]
                elif name.startswith("tensorrt") and base.startswith("torch"):
                    targets.append(Target(cell=name, figure=decode, base=base, value=1.2, at_least=True))
                elif name.startswith("torch") and base.startswith("transformers") and batch == _LARGEST_BATCH:
                    targets.append(Target(cell=name, figure=decode, base=base, value=8.0, at_least=True))
        if name.startswith("tensorrt"):
            targets += [Target(cell=name, figure=f"python @{batch}", value=0.1) for batch in batches]
    return tuple(targets)


def _given_folder(planned: Planned, workshop: Path) -> Planned:
    """transformers is told a Hugging Face folder, made once of a GGUF file. Raises `ModelError`."""
    if planned.source is None:
        return planned
    folder = hugging_face_folder(planned.source, workshop)
    return replace(planned, argv=(*planned.argv, "--source", str(folder.resolve())))


@dataclass(slots=True, kw_only=True)
class _Running:
    """Runs a process a round. `engines` says what each cell's is: model, precision, device, library."""

    settings: Settings
    options: EnginesOptions
    threads: int
    engines: dict[str, Engine] = field(default_factory=dict)

    def cell(self, planned: Planned, names: Sequence[str]) -> Cell:
        async def measure(_: int) -> Figures:
            said = await (self._llama(planned, planned.gguf) if planned.gguf is not None else self._python(planned))
            self.engines[planned.name] = said
            return said.figures(self.options.sizes)

        return standing(planned.name, measure, bases=bases_of(planned.name, names))

    async def _python(self, planned: Planned) -> Engine:
        sizes = self.options.sizes
        longest = sizes.prompt_tokens + sizes.new_tokens
        env = {
            f"{PREFIX}WORKER__SLOTS": str(max(self.options.batches)),
            f"{PREFIX}WORKER__MAX_LENGTH": str(-(-longest // _SLOT_MULTIPLE) * _SLOT_MULTIPLE),
            f"{PREFIX}WORKER__THREADS": str(self.threads),
            f"{PREFIX}MODEL__DIR": str(self.settings.model.dir),
            **planned.env,
        }
        given = [",".join(map(str, self.options.batches)), str(sizes.prompt_tokens), str(sizes.new_tokens)]
        (*_, line), _ = await run_to_end([*planned.argv, *given], env=env)
        try:
            return msgspec.json.decode(line, type=Engine)
        except msgspec.DecodeError as error:
            raise ServiceError(f"said no result: {line.decode(errors='replace')}") from error

    async def _llama(self, planned: Planned, gguf: Path) -> Engine:
        given = llama.arguments(gguf, self.threads, self.options.batches, self.options.sizes)
        lines, rss_mib = await run_to_end([*planned.argv, *given], env={})
        model = ModelFolder.open(self.settings.model.dir).manifest.name
        runtime = Path(planned.argv[0]).name
        return llama.measured(llama.parse(lines), model, gguf, runtime=runtime, rss_mib=rss_mib)
