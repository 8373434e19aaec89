"""`replyline profile`: where an engine's calls spend their time, as one Chrome trace of the runtime's own profiler."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.measure.runner import check_writable
from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder
from shared.process.extras import install_command
from shared.settings import PREFIX, Settings
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling

_WARM: Final = 2
_TOKEN: Final = 3  # every vocabulary has it; what the tokens are plays no part in what they take
_GREEDY: Final = Sampling()

# An engine, and what writes its trace once it has been called.
Profiled = tuple[Engine, Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """`batch` prompts of `prompt_tokens` are prefilled together, `prefills` times, then decoded for `steps`."""

    batch: int
    prompt_tokens: int
    prefills: int
    steps: int
    trace: Path

    @property
    def max_length(self) -> int:
        return max(64, self.prompt_tokens + _WARM + self.steps + 1)


def profile(settings: Settings, options: ProfileOptions) -> str:
    """Write the trace and return what it is of. Raises `SettingsError`, `ModelError`, `EngineError`."""
    check_writable(options.trace, "--trace")
    with tempfile.TemporaryDirectory(prefix="replyline-profile-") as scratch:
        engine, write = open_profiled(settings, options.trace, Path(scratch))
        try:
            run(engine, options)
            write()
        finally:
            engine.close()
    calls = f"{_WARM + options.prefills} prefills of {options.prompt_tokens} tokens, {_WARM + options.steps} steps"
    info = engine.info
    return f"{info.name}, {info.model} {info.precision}: batch {options.batch}, {calls} (the first {_WARM} warm it up)"


def run(engine: Engine, options: ProfileOptions) -> None:
    """Prefill, then decode. Raises `SettingsError` where the engine does not prefill as many together."""
    if options.batch > engine.info.max_prefill_rows:
        raise SettingsError(f"--batch {options.batch}: this engine prefills {engine.info.max_prefill_rows} together")
    slots, prompt = range(options.batch), [_TOKEN] * options.prompt_tokens
    for _ in range(_WARM + options.prefills):
        engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=_GREEDY) for slot in slots])
    for past in range(options.prompt_tokens, options.prompt_tokens + _WARM + options.steps):
        engine.decode([DecodeRow(slot=slot, past=past, token_id=_TOKEN, sampling=_GREEDY) for slot in slots])


def open_profiled(settings: Settings, trace: Path, scratch: Path) -> Profiled:
    """Return the engine that the settings name. Raises `SettingsError`, `ModelError`."""
    opened = {"onnx": _onnx, "torch": _torch, "tensorrt": _tensorrt, "tensorrt-rtx": _tensorrt}
    engine = settings.worker.engine
    if engine not in opened:
        raise SettingsError(
            f"{PREFIX}WORKER__ENGINE={engine}: there is a profiler for onnx, tensorrt and torch; --engine onnx"
        )
    return opened[engine](settings, trace, scratch)


def _onnx(settings: Settings, trace: Path, scratch: Path) -> Profiled:
    try:
        from workers.engine.onnx import OnnxEngine
    except ImportError as error:
        raise ModelError(f"{error.name} is not installed; run: {install_command('onnx')}") from None
    folder, worker = ModelFolder.open(settings.model.dir, verify=True), settings.worker
    if folder.manifest.dialect != "cpu":
        raise SettingsError(f"{PREFIX}MODEL__DIR={settings.model.dir}: it has no graph for onnx; take another")
    longest, length = folder.manifest.architecture.max_positions, worker.max_length
    if length > longest:
        raise SettingsError(f"prompt and steps are {length} tokens, the model has {longest}; ask for fewer")
    threads, rows, run_file = worker.threads or os.cpu_count() or 1, worker.slots_without_gpu, scratch / "run"
    engine = OnnxEngine(
        folder, num_slots=rows, max_length=length, threads=threads, max_prefill_rows=rows, profile=run_file
    )
    return engine, lambda: trace.write_bytes(engine.end_profile().read_bytes())


def _torch(settings: Settings, trace: Path, _scratch: Path) -> Profiled:
    from workers.engine.load_model import load_model

    engine = load_model(settings).engine
    from torch import profiler

    recorded = profiler.profile()
    recorded.start()
    return engine, lambda: (recorded.stop(), recorded.export_chrome_trace(str(trace)))


def _tensorrt(settings: Settings, trace: Path, _scratch: Path) -> Profiled:
    """TensorRT tells of each layer how long it took, not when: they stand one behind the other."""
    from workers.engine.tensorrt.load_tensorrt import load_tensorrt
    from workers.engine.unusable import Unusable

    events: list[dict[str, str | int | float]] = []

    def take(layer: str, ms: float) -> None:
        start = float(events[-1]["ts"]) + float(events[-1]["dur"]) if events else 0.0
        events.append({"name": layer, "ph": "X", "pid": 0, "tid": 0, "ts": start, "dur": ms * 1_000})

    engine = load_tensorrt(settings, ModelFolder.open(settings.model.dir, verify=True), take)
    if isinstance(engine, Unusable):
        raise SettingsError(f"{PREFIX}WORKER__ENGINE={settings.worker.engine}: {engine.reason}")
    events.clear()  # what loading tried
    return engine, lambda: trace.write_text(json.dumps({"traceEvents": events}))
