"""`replyline bench engines`: every engine that this machine can run, compared with the installed peers.

Each engine, with each prepared folder of the model that it computes, is a cell with a separate process.
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
_LARGEST_BATCH: Final = 64
# The target ratio of native's speed to llama.cpp's: by context, at these numbers of rows; and for any prompt over any
# past.
_ROWS: Final = (1, 4, 8, 16)
_DECODE_OF_LLAMA: Final[dict[str, dict[int, tuple[float, ...]]]] = {
    "native int8": {64: (1.0, 2.0, 2.4, 2.4), 800: (1.2, 2.5, 3.2, 3.2)},
    "native q4": {64: (1.5,)},
}
_PREFILL_OF_LLAMA: Final = 1.8


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesOptions:
    engines: tuple[str, ...]
    sizes: Sizes
    peers: Peers


def parse_engines(text: str) -> tuple[str, ...]:
    """`onnx,llama.cpp`. Raises `SettingsError`."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or set(names) - set(ENGINES):
        raise SettingsError(f"--engines {text}: name some of {', '.join(ENGINES)}")
    return names


def parse_numbers(option: str, text: str, least: int, most: int) -> tuple[int, ...]:
    """Sorted, without duplicates: a process's peak memory is reported batch by batch. Raises `SettingsError`."""
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or not least <= numbers[0] <= numbers[-1] <= most:
        raise SettingsError(f"{option} {text}: write numbers from {least} to {most}, comma-separated: 128,256")
    return numbers


async def bench_engines(settings: Settings, bench: Bench, options: EnginesOptions, console: Console) -> None:
    """Raises `SettingsError` if no engine can run, `ServiceError` if nothing could be measured."""
    threads = settings.worker.threads or os.cpu_count() or 1
    planned, not_run = plan(options.engines, settings, options.peers, threads)
    missing = [f"NOT RUN: {one.engine}: {one.reason}" for one in not_run]
    for line in missing:
        console.print(line, style="bold", markup=False)
    if not planned:
        raise SettingsError(f"--engines {','.join(options.engines)}: none of them can run here")
    names = [one.name for one in planned]
    bench = replace(bench, targets=targets_of(names, options.sizes))
    running = _Running(settings=settings, options=options, threads=threads)
    with TemporaryDirectory(prefix="replyline-bench-") as workshop:
        cells = [running.cell(_given_folder(one, Path(workshop)), names) for one in planned]
        await bench.run(cells, console, threads=threads, sizes=options.sizes, not_run=not_run, engines=running.engines)
    for line in missing:
        print(line)


def bases_of(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """Every engine of ours is divided by each peer, and TensorRT by torch."""
    if name.startswith(PEERS):
        return ()
    bases = (*PEERS, "torch") if name.startswith("tensorrt") else PEERS
    return tuple(other for other in names if other.startswith(bases))


def targets_of(names: Sequence[str], sizes: Sizes) -> tuple[Target, ...]:
    """Of llama.cpp's speed on the CPU; of transformers' eight times at 64 rows, and little Python, on a GPU."""
    steps = [f"{rows} x {context}" for context in sizes.contexts for rows in sizes.batches]
    prompts = [f"prefill_tok_s {tokens} over {past}" for past in sizes.pasts for tokens in sizes.prefills]
    targets: list[Target] = []
    for name in names:
        of_llama = {
            f"{rows} x {context}": value
            for context, values in _DECODE_OF_LLAMA.get(name, {}).items()
            for rows, value in zip(_ROWS, values, strict=False)
        }
        least = {f"decode_tok_s {step}": of_llama[step] for step in steps if step in of_llama}
        if name == "native int8":
            least |= dict.fromkeys(prompts, _PREFILL_OF_LLAMA)
        for base in bases_of(name, names):
            if name.startswith("tensorrt") and base.startswith("torch"):
                least = {f"decode_tok_s {step}": 1.2 for step in steps}
            elif name.startswith("torch") and base.startswith("transformers"):
                least = {f"decode_tok_s {step}": 8.0 for step in steps if step.startswith(f"{_LARGEST_BATCH} x")}
            elif not base.startswith("llama.cpp"):
                continue
            targets += [
                Target(cell=name, figure=figure, base=base, value=value, at_least=True)
                for figure, value in least.items()
            ]
        if name.startswith("tensorrt"):
            targets += [Target(cell=name, figure=f"python {step}", value=0.1) for step in steps]
    return tuple(targets)


def _given_folder(planned: Planned, workshop: Path) -> Planned:
    """Return a Hugging Face folder for transformers, made once from a GGUF file. Raises `ModelError`."""
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
            return said.figures()

        return standing(planned.name, measure, bases=bases_of(planned.name, names))

    async def _python(self, planned: Planned) -> Engine:
        sizes = self.options.sizes
        env = {
            f"{PREFIX}WORKER__SLOTS": str(sizes.slots),
            f"{PREFIX}WORKER__MAX_LENGTH": str(sizes.length),
            f"{PREFIX}WORKER__THREADS": str(self.threads),
            f"{PREFIX}MODEL__DIR": str(self.settings.model.dir),
            **planned.env,
        }
        (*_, line), _ = await run_to_end([*planned.argv, msgspec.json.encode(sizes).decode()], env=env)
        try:
            return msgspec.json.decode(line, type=Engine)
        except msgspec.DecodeError as error:
            raise ServiceError(f"said no result: {line.decode(errors='replace')}") from error

    async def _llama(self, planned: Planned, gguf: Path) -> Engine:
        sizes = self.options.sizes
        batched, prompts = (str(planned.llama / name) for name in (llama.BATCHED, llama.PROMPTS))
        decoded, rss_mib = await run_to_end([batched, *llama.batched_arguments(gguf, self.threads, sizes)], env={})
        prefilled, _ = await run_to_end([prompts, *llama.prompt_arguments(gguf, self.threads, sizes)], env={})
        return llama.measured(
            llama.parse(llama.BATCHED, decoded, llama.BatchedRow),
            llama.parse(llama.PROMPTS, prefilled, llama.PromptRow),
            ModelFolder.open(self.settings.model.dir).manifest.name,
            gguf,
            rss_mib=rss_mib,
        )
