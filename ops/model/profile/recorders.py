"""The runtimes' own profilers, behind one interface: which operator took how long in which engine call."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from ops.model.profile.calls import Call, Phase, place_of
from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder
from shared.process.extras import install_command
from shared.settings import PREFIX, Settings
from workers.engine import Engine

_MS_PER_US: Final = 1e-3
_KERNEL: Final = "_kernel_time"
_PLACE: Final = re.compile(r"layers\.\d+\.")
_MOST_CHARS: Final = 60  # a fused layer's name has all of its nodes


class Recorder(Protocol):
    """`engine` is to be called by `measure` alone, once a time: `phase` None is for what is not to be counted."""

    engine: Engine

    def measure(self, phase: Phase | None, call: Callable[[], object]) -> float:
        """Make one engine call; what it took, ms."""

    def finish(self) -> list[Call]:
        """Every operator of what was counted. The engine is closed."""


def open_recorder(settings: Settings, scratch: Path) -> Recorder:
    """For the engine that the settings name. Raises `SettingsError`, `ModelError`."""
    match settings.worker.engine:
        case "onnx":
            return OnnxRecorder(settings, scratch)
        case "torch":
            return TorchRecorder(settings)
        case "tensorrt" | "tensorrt-rtx":
            return TensorrtRecorder(settings)
        case other:
            raise SettingsError(f"{PREFIX}WORKER__ENGINE={other}: there is a profiler for onnx, tensorrt and torch")


class OnnxRecorder:
    """ONNX Runtime writes one file of all runs: each of them is one engine call."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        try:
            from workers.engine.onnx import OnnxEngine
        except ImportError as error:
            raise ModelError(
                f"the onnx engine is not installed ({error.name}); run: {install_command('onnx')}"
            ) from None
        folder = ModelFolder.open(settings.model.dir, verify=True)
        if folder.manifest.dialect != "cpu":
            raise SettingsError(f"{PREFIX}MODEL__DIR={settings.model.dir}: its graph is for TensorRT; take another")
        worker, longest = settings.worker, folder.manifest.architecture.max_positions
        if worker.max_length > longest:
            raise SettingsError(
                f"prompt and steps are {worker.max_length} tokens, {folder.manifest.name} has {longest} positions; "
                f"ask for fewer"
            )
        self._engine = OnnxEngine(
            folder,
            num_slots=worker.slots,
            max_length=worker.max_length,
            threads=worker.threads or os.cpu_count() or 1,
            max_prefill_rows=worker.slots,
            profile=scratch / "run",
        )
        self.engine: Engine = self._engine
        self._phases: list[Phase | None] = []

    def measure(self, phase: Phase | None, call: Callable[[], object]) -> float:
        self._phases.append(phase)
        return _timed(call)

    def finish(self) -> list[Call]:
        events = json.loads(self._engine.end_profile().read_bytes())
        self._engine.close()
        return calls_of(events, self._phases)


def calls_of(events: Sequence[dict[str, Any]], phases: Sequence[Phase | None]) -> list[Call]:
    """The operators of ONNX Runtime's events, each of the run that it began in; `phases` are the runs' in their order.

    Raises `ModelError` where there are not as many runs: ONNX Runtime stops writing after a million events.
    """
    runs = sorted((event["ts"], event["dur"]) for event in events if event.get("name") == "model_run")
    if len(runs) != len(phases):
        raise ModelError(f"ONNX Runtime recorded {len(runs)} of {len(phases)} runs; profile fewer steps")
    nodes = sorted(
        (event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)),
        key=lambda event: event["ts"],
    )
    calls: list[Call] = []
    index = 0
    for node in nodes:
        while index + 1 < len(runs) and node["ts"] >= runs[index + 1][0]:
            index += 1
        phase = phases[index]
        if phase is not None:
            layer, part = place_of(node["name"])
            calls.append(Call(phase, layer, part, node["args"]["op_name"], node["dur"] * _MS_PER_US))
    return calls


class TorchRecorder:
    """torch's profiler, around each engine call. Its operators have no layer: the decoder's order does not tell it."""

    def __init__(self, settings: Settings) -> None:
        from workers.loading import load_model

        self.engine = load_model(settings).engine
        self._calls: list[Call] = []

    def measure(self, phase: Phase | None, call: Callable[[], object]) -> float:
        if phase is None:
            return _timed(call)
        with _torch_profile() as profile:
            ms = _timed(call)
        self._calls += torch_calls(profile.events(), phase)
        return ms

    def finish(self) -> list[Call]:
        self.engine.close()
        return self._calls


class TensorrtRecorder:
    """TensorRT tells of each layer as the work that it is in has ended: before the engine call returns.

    Raises `SettingsError` where TensorRT cannot be used here."""

    def __init__(self, settings: Settings) -> None:
        from workers.engine.tensorrt.loading import load_tensorrt
        from workers.engine.tensorrt.probe import Unusable

        folder = ModelFolder.open(settings.model.dir, verify=True)
        self._phase: Phase | None = None
        self._calls: list[Call] = []
        engine = load_tensorrt(settings, folder, self.take)
        if isinstance(engine, Unusable):
            raise SettingsError(f"{PREFIX}WORKER__ENGINE={settings.worker.engine}: {engine.reason}")
        self.engine = engine

    def take(self, layer_name: str, ms: float) -> None:
        """A layer of what is measured now; what is not to be counted is forgotten."""
        if self._phase is not None:
            self._calls.append(tensorrt_call(self._phase, layer_name, ms))

    def measure(self, phase: Phase | None, call: Callable[[], object]) -> float:
        self._phase = phase
        try:
            return _timed(call)
        finally:
            self._phase = None

    def finish(self) -> list[Call]:
        self.engine.close()
        return self._calls


def tensorrt_call(phase: Phase, layer_name: str, ms: float) -> Call:
    """TensorRT names a fused layer by the nodes in it: it stands where the first of them with a place does, and its
    kind is the name without the places."""
    layer, part = place_of(layer_name)
    return Call(phase, layer, part, _PLACE.sub("", layer_name)[:_MOST_CHARS], ms)


def torch_calls(events: Sequence[Any], phase: Phase) -> list[Call]:
    """The kernels of torch's events where any ran on a GPU, else its operators without those that they called."""
    on_gpu = [event for event in events if event.device_type.name == "CUDA"]
    timed = [(event.name, event.self_device_time_total) for event in on_gpu] or [
        (event.name, event.self_cpu_time_total) for event in events
    ]
    return [Call(phase, None, "model", name, us * _MS_PER_US) for name, us in timed if us > 0]


@contextmanager
def _torch_profile() -> Iterator[Any]:
    from torch import cuda
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])]
    with profile(activities=activities) as recorded:
        yield recorded


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1_000
