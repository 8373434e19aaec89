"""`replyline profile`: show where an engine's calls spend their time, as one Chrome trace from the runtime's own
profiler. For the native engine also summarise the steps in words."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder
from shared.nouns import counted
from shared.process.extras import install_command
from shared.settings import PREFIX, Settings
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling

_WARM: Final = 2
_TOKEN: Final = 3  # exists in every vocabulary; the value of the tokens does not affect the time
_GREEDY: Final = Sampling()

_PRODUCTS: Final = ("qkv", "out", "gate_up", "down", "head")

# An engine, and a function that writes its trace after the calls and returns additional text.
Profiled = tuple[Engine, Callable[[], str]]


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """A step of the native engine: its rows, their longest context, and the nanoseconds of its phases."""

    rows: int
    context: int
    phases: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What to profile: `batch` prompts of `prompt_tokens` are prefilled together, `prefills` times, then decoded for
    `steps`."""

    batch: int
    prompt_tokens: int
    prefills: int
    steps: int
    trace: Path

    @property
    def max_length(self) -> int:
        return max(64, self.prompt_tokens + _WARM + self.steps + 1)


def profile(settings: Settings, options: ProfileOptions) -> str:
    """Write the trace and return a description of it. Raises `SettingsError`, `ModelError`, `EngineError`."""
    with tempfile.TemporaryDirectory(prefix="replyline-profile-") as scratch:
        engine, write = open_profiled(settings, options.trace, Path(scratch))
        try:
            run(engine, options)
            more = write()
        finally:
            engine.close()
    calls = f"{_WARM + options.prefills} prefills of {options.prompt_tokens} tokens, {_WARM + options.steps} steps"
    info = engine.info
    told = f"{info.name}, {info.model} {info.precision}: batch {options.batch}, {calls} (the first {_WARM} warm it up)"
    return told + more


def run(engine: Engine, options: ProfileOptions) -> None:
    """Prefill, then decode. Raises `SettingsError` if the engine cannot prefill as many rows together."""
    if options.batch > engine.info.max_prefill_rows:
        raise SettingsError(f"--batch {options.batch}: this engine prefills {engine.info.max_prefill_rows} together")
    slots, prompt = range(options.batch), [_TOKEN] * options.prompt_tokens
    for _ in range(_WARM + options.prefills):
        engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=_GREEDY) for slot in slots])
    for past in range(options.prompt_tokens, options.prompt_tokens + _WARM + options.steps):
        engine.decode([DecodeRow(slot=slot, past=past, token_id=_TOKEN, sampling=_GREEDY) for slot in slots])


def open_profiled(settings: Settings, trace: Path, scratch: Path) -> Profiled:
    """Return the engine in the settings, with its profiler. Raises `SettingsError`, `ModelError`."""
    opened = {"native": _native, "onnx": _onnx, "torch": _torch, "tensorrt": _tensorrt, "tensorrt-rtx": _tensorrt}
    engine = settings.worker.engine
    if engine not in opened:
        raise SettingsError(
            f"{PREFIX}WORKER__ENGINE={engine}: only native, onnx, tensorrt and torch have a profiler; --engine onnx"
        )
    return opened[engine](settings, trace, scratch)


def _onnx(settings: Settings, trace: Path, scratch: Path) -> Profiled:
    try:
        from workers.engine.onnx import OnnxEngine
    except ImportError as error:
        raise ModelError(f"{error.name} is not installed; run: {install_command('onnx')}") from None
    folder, worker = ModelFolder.open(settings.model.dir, verify=True), settings.worker
    if folder.manifest.dialect != "cpu":
        raise SettingsError(f"{PREFIX}MODEL__DIR={settings.model.dir}: it has no graph for onnx; use another model")
    longest, length = folder.manifest.architecture.max_positions, worker.max_length
    if length > longest:
        raise SettingsError(f"prompt and steps are {length} tokens, the model has {longest}; use fewer")
    threads, rows, run_file = worker.threads or os.cpu_count() or 1, worker.slots_without_gpu, scratch / "run"
    engine = OnnxEngine(
        folder, num_slots=rows, max_length=length, threads=threads, max_prefill_rows=rows, profile=run_file
    )

    def write() -> str:
        trace.write_bytes(engine.end_profile().read_bytes())
        return ""

    return engine, write


def _native(settings: Settings, trace: Path, _scratch: Path) -> Profiled:
    """Open the native engine, whose library reports how long each phase of a step took."""
    from workers.engine.native.load_native import load_native
    from workers.engine.unusable import Unusable

    engine = load_native(settings.worker, ModelFolder.open(settings.model.dir, verify=True))
    if isinstance(engine, Unusable):
        raise SettingsError(f"{PREFIX}WORKER__ENGINE=native: {engine.reason}")
    steps: list[ProfiledStep] = []
    engine.profile(lambda rows, context, phases: steps.append(ProfiledStep(rows, context, phases)))

    def write() -> str:
        trace.write_text(json.dumps({"traceEvents": events_of(steps)}))
        return shares(steps)

    return engine, write


def events_of(steps: Sequence[ProfiledStep]) -> list[dict[str, object]]:
    """Return each step as an event of a Chrome trace, with its phases below it, one after the other."""
    events: list[dict[str, object]] = []
    at_us = 0.0
    for step in steps:
        about = {"rows": step.rows, "context": step.context}
        whole = {"name": counted(step.rows, "row"), "dur": sum(step.phases.values()) / 1_000, "args": about}
        events.append({"ph": "X", "pid": 0, "tid": 0, "ts": at_us, **whole})
        for name, ns in step.phases.items():
            events.append({"ph": "X", "pid": 0, "tid": 0, "ts": at_us, "name": name, "dur": ns / 1_000})
            at_us += ns / 1_000
    return events


def shares(steps: Sequence[ProfiledStep]) -> str:
    """Return a line for each number of rows: the time of such a step, and the shares of matrix products, attention and
    the rest."""
    lines = []
    for rows in dict.fromkeys(step.rows for step in steps):
        alike = [step for step in steps if step.rows == rows]
        contexts = [step.context for step in alike]
        took = {name: sum(step.phases[name] for step in alike) for name in alike[0].phases}
        whole, attention, products = sum(took.values()), took["attention"], sum(took[name] for name in _PRODUCTS)
        lines.append(
            f"\n{counted(len(alike), 'step')} of {counted(rows, 'row')}, "
            f"contexts of {min(contexts)} to {max(contexts)} tokens: "
            f"median {median(sum(step.phases.values()) for step in alike) / 1e6:.2f} ms; products "
            f"{products / whole:.0%}, attention {attention / whole:.0%}, "
            f"rest {(whole - products - attention) / whole:.0%}"
        )
    return "".join(lines)


def _torch(settings: Settings, trace: Path, _scratch: Path) -> Profiled:
    from workers.engine.load_model import load_model

    engine = load_model(settings).engine
    from torch import profiler

    recorded = profiler.profile()
    recorded.start()

    def write() -> str:
        recorded.stop()
        recorded.export_chrome_trace(str(trace))
        return ""

    return engine, write


def _tensorrt(settings: Settings, trace: Path, _scratch: Path) -> Profiled:
    """Profile TensorRT, which reports how long each layer took but not when; layers are shown one after the other."""
    from workers.engine.tensorrt.load_tensorrt import load_tensorrt
    from workers.engine.unusable import Unusable

    events: list[dict[str, str | int | float]] = []

    def take(layer: str, ms: float) -> None:
        start = float(events[-1]["ts"]) + float(events[-1]["dur"]) if events else 0.0
        events.append({"name": layer, "ph": "X", "pid": 0, "tid": 0, "ts": start, "dur": ms * 1_000})

    engine = load_tensorrt(settings, ModelFolder.open(settings.model.dir, verify=True), take)
    if isinstance(engine, Unusable):
        raise SettingsError(f"{PREFIX}WORKER__ENGINE={settings.worker.engine}: {engine.reason}")
    events.clear()  # discard the events of loading

    def write() -> str:
        trace.write_text(json.dumps({"traceEvents": events}))
        return ""

    return engine, write
