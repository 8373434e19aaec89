"""Build TensorRT plans from the graphs of `workers.graph`. TensorRT for RTX needs no GPU for that.

Networks are strongly typed: all precisions come from the graph's types, casts and Q/DQ nodes.
"""

import importlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from shared.errors import ModelError
from shared.process.extras import install_command
from workers.engine.tensorrt.plans import PlanShapes

Library = Literal["tensorrt", "tensorrt-rtx"]

# a wheel with its libraries, or only bindings for libraries on the system
_MODULES: Final[dict[str, tuple[str, str]]] = {
    "tensorrt": ("tensorrt", "tensorrt_bindings"),
    "tensorrt-rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
_OLDEST: Final = "10.15"
_KV_IN_PLACE: Final = "IKVCacheUpdateLayer"  # introduced in that version

Shape = tuple[int, ...]
Progress = Callable[[str, float], None]


def import_library(name: str) -> Any:
    """Return the module of TensorRT or TensorRT for RTX.

    Raises:
        ModelError: it is missing or too old.
    """
    causes = []
    for module in _MODULES[name]:
        try:
            library = importlib.import_module(module)
        except ImportError as error:
            causes.append(str(error))
            continue
        if not hasattr(library, _KV_IN_PLACE):
            raise ModelError(f"{name} {library.__version__} is too old; install {_OLDEST} or later")
        return library
    raise ModelError(f"{name} is not installed ({causes[-1]}); run: {install_command(name)}")


def build_decoder(library: Any, graph: Path, shapes: PlanShapes, progress: Progress) -> bytes:
    """Return a plan of a decoder's graph with two profiles: `PREFILL`, of any size within `shapes`, and `DECODE`.

    Args:
        library: TensorRT's module.
        graph: the graph's file.
        shapes: the plan's maximum sizes.
        progress: called from other threads with the current phase and the fraction done.

    Raises:
        ModelError: TensorRT rejects the graph; the message has its error.
    """
    prefill = [(1, 1), (1, shapes.prefill_tokens), (shapes.prefill_rows, shapes.prefill_tokens)]
    decode = [(1, 1), (shapes.num_slots, 1), (shapes.num_slots, 1)]
    return _build(library, graph, [prefill, decode], progress)


def build_sampler(library: Any, graph: bytes, shapes: PlanShapes, progress: Progress) -> bytes:
    """Return a plan of the sampler's graph for up to all slots.

    Raises:
        ModelError: TensorRT rejects the graph.
    """
    return _build(library, graph, [[(1, 1), (shapes.num_slots, 1), (shapes.num_slots, 1)]], progress)


def _build(library: Any, graph: Path | bytes, profiles: Sequence[list[tuple[int, int]]], progress: Progress) -> bytes:
    """Build a plan. `profiles`: rows and tokens of each profile's smallest, usual and largest step."""
    log = make_log(library)
    builder = library.Builder(log)
    network = builder.create_network(1 << int(library.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = library.OnnxParser(network, log)
    parsed = parser.parse_from_file(str(graph)) if isinstance(graph, Path) else parser.parse(graph)
    if not parsed:
        said = "; ".join(str(parser.get_error(at).desc()) for at in range(parser.num_errors))
        raise ModelError(f"TensorRT {library.__version__} cannot read the graph ({said}); prepare the model again")
    config = builder.create_builder_config()
    for steps in profiles:
        profile = builder.create_optimization_profile()
        for at in range(network.num_inputs):
            tensor = network.get_input(at)
            profile.set_shape(tensor.name, *(_shape(tensor, rows, tokens) for rows, tokens in steps))
        config.add_optimization_profile(profile)
    config.progress_monitor = _make_monitor(library, progress)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ModelError(f"TensorRT {library.__version__} cannot build the graph ({log.last_error})")
    progress("plan built", 1.0)
    return bytes(memoryview(plan))


def _shape(tensor: Any, rows: int, tokens: int) -> Shape:
    """Return an input's shape: the first axis is the rows, and only `input_ids` has an axis of tokens."""
    rest = tuple(tensor.shape)[1:]
    return (rows, tokens) if tensor.name == "input_ids" else (rows, *rest)


def make_log(library: Any) -> Any:
    """Return a TensorRT logger that prints nothing and stores the last error, which TensorRT does not return
    otherwise."""

    class LastErrorLog(library.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.last_error = "no reason given"

        def log(self, severity: Any, message: str) -> None:
            if severity in {library.ILogger.ERROR, library.ILogger.INTERNAL_ERROR}:
                self.last_error = " ".join(message.split())

    return LastErrorLog()


class BuildPhases:
    """The progress of a build, from TensorRT's nested phases: name and fraction of the outermost one.

    TensorRT reports from several threads; each sees a consistent state.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phases: dict[str, tuple[str | None, int, int]] = {}  # name → parent, steps, steps done

    def start(self, name: str, parent: str | None, num_steps: int) -> None:
        with self._lock:
            self._phases[name] = (parent, max(num_steps, 1), 0)

    def step(self, name: str, step: int) -> tuple[str, float]:
        with self._lock:
            parent, num_steps, _ = self._phases.get(name, (None, step + 1, 0))
            self._phases[name] = (parent, num_steps, min(step + 1, num_steps))
            return self._outermost(name)

    def finish(self, name: str) -> None:
        with self._lock:
            self._phases.pop(name, None)

    def _outermost(self, name: str) -> tuple[str, float]:
        parent, num_steps, done = self._phases[name]
        fraction = done / num_steps
        while parent is not None and parent in self._phases:
            name = parent
            parent, num_steps, done = self._phases[name]
            fraction = min((done + fraction) / num_steps, 1.0)
        return name, fraction


def _make_monitor(library: Any, progress: Progress) -> Any:
    phases = BuildPhases()

    class Monitor(library.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            progress(*phases.step(phase_name, step))
            return True

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return Monitor()
