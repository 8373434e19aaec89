"""Load a TensorRT engine from the settings and a model's folder: probe, memory plan, plans (cached or built),
device."""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shared.errors import SettingsError
from shared.model.folder import GRAPH, GRAPH_DATA, ModelFolder
from shared.settings import PREFIX, Settings
from shared.telemetry.logs import get_logger
from workers.engine import Engine
from workers.engine.device.reserve import tell_reserve
from workers.engine.device.tokens import sampler_for
from workers.engine.tensorrt.build import Progress, build_decoder, build_sampler, import_library
from workers.engine.tensorrt.plans import PlanCache, PlanKey, PlanShapes, Rejected
from workers.engine.tensorrt.probe import DeviceFacts, probe
from workers.engine.tensorrt.shapes import fit_shapes, plan_shapes, unmet
from workers.engine.unusable import Unusable

# TensorRT for RTX compiles its kernels where they run, so one plan works for all GPUs.
ANY_SM: Final = "any"


@dataclass(frozen=True, slots=True)
class Planner:
    """Provides plans for one folder, library and kind of GPU, from the cache or by building them."""

    folder: ModelFolder
    library_name: str
    library: Any
    sm: str
    shapes: PlanShapes
    cache: PlanCache

    @property
    def decoder_key(self) -> PlanKey:
        manifest = self.folder.manifest
        files = sorted((entry.name, entry.sha256) for entry in manifest.files if entry.name in {GRAPH, GRAPH_DATA})
        digest = hashlib.sha256(msgspec.json.encode(files)).hexdigest()
        return self._key(f"{manifest.name}-{manifest.precision}", digest, manifest.precision)

    @property
    def sampler_key(self) -> PlanKey:
        return self._key("sampler", hashlib.sha256(self._sampler_graph()).hexdigest(), "fp32")

    def decoder(self, progress: Progress, *, again: bool = False) -> tuple[bytes, bool]:
        """Return the decoder's plan, and whether it was just built; `again` builds it in any case."""
        graph = self.folder.graph_path
        build = lambda: build_decoder(self.library, graph, self.shapes, progress)  # noqa: E731
        return self._get(self.decoder_key, build, again=again)

    def sampler(self, progress: Progress, *, again: bool = False) -> tuple[bytes, bool]:
        """Return the sampler's plan, in the same way."""
        build = lambda: build_sampler(self.library, self._sampler_graph(), self.shapes, progress)  # noqa: E731
        return self._get(self.sampler_key, build, again=again)

    def _sampler_graph(self) -> bytes:
        return sampler_for(self.folder.manifest.architecture.vocab_size)

    def _key(self, model: str, digest: str, precision: str) -> PlanKey:
        return PlanKey(
            model=model,
            graph_sha256=digest,
            precision=precision,
            library=self.library_name,
            version=self.library.__version__,
            sm=self.sm,
            shapes=self.shapes,
        )

    def _get(self, key: PlanKey, build: Callable[[], bytes], *, again: bool) -> tuple[bytes, bool]:
        kept = None if again else self.cache.load(key)
        if isinstance(kept, bytes):
            return kept, False
        if isinstance(kept, Rejected):
            get_logger().warning("plan_rejected", path=str(kept.path), reason=kept.reason)
        plan = build()
        try:
            self.cache.store(key, plan)
        except OSError as error:  # a plan that could not be stored is built again at the next start
            get_logger().warning("plan_not_kept", path=str(self.cache.path(key)), reason=error.strerror)
        return plan, True


def load_tensorrt(
    settings: Settings, folder: ModelFolder, layer_time: Callable[[str, float], None] | None = None
) -> Engine | Unusable:
    """Return an engine on the first GPU, or why it cannot be used.

    The first start builds the plan, which takes minutes (`replyline engine build` does it in advance).

    Args:
        settings: the process's settings.
        folder: the model.
        layer_time: passed to `CudaDevice`.

    Raises:
        SettingsError: the model or the memory does not fit.
        ModelError: TensorRT rejects the graph.
        EngineError: the device fails.
    """
    worker = settings.worker
    plan_shapes(worker, folder, max(1, worker.slots))  # reject an unsuitable folder or number of slots before the probe
    facts = probe(worker.engine)
    if isinstance(facts, Unusable):
        return facts
    reason = unmet(folder.manifest, facts.sm)
    if reason is not None:
        return Unusable(reason)
    shapes, memory = fit_shapes(worker, folder, facts)
    if not memory.fits:
        raise SettingsError(
            f"{PREFIX}WORKER__SLOTS={worker.slots}: {facts.device} {memory.describe()}; {memory.remedy}"
        )
    library = import_library(worker.engine)
    sm = ANY_SM if worker.engine == "tensorrt-rtx" else facts.sm
    planner = Planner(folder, worker.engine, library, sm, shapes, PlanCache(worker.plans_dir))
    decoder = _decoder(planner, facts)
    if isinstance(decoder, Unusable):
        return decoder

    from workers.engine.tensorrt.cuda import CudaDevice
    from workers.engine.tensorrt.engine import TensorrtEngine

    plans = {"decoder": decoder, "sampler": planner.sampler(_ignored)[0]}
    with ExitStack() as failing:
        device = CudaDevice(library, layer_time)
        failing.callback(device.close)
        engine = TensorrtEngine(
            folder, device, **plans, shapes=shapes, max_length=worker.max_length, name=worker.engine
        )
        tell_reserve(memory, facts.device, device.free_bytes())
        failing.pop_all()
    return engine


def _decoder(planner: Planner, facts: DeviceFacts) -> bytes | Unusable:
    """Return a plan that another process has loaded successfully; a stored one that does not load is built again."""
    get_logger().info("plan_wanted", device=facts.device, path=str(planner.cache.path(planner.decoder_key)))
    plan, built = planner.decoder(_ignored)
    tried = _tried(planner)
    if isinstance(tried, Unusable) and not built:
        get_logger().warning("plan_rejected", reason=tried.reason)
        plan, _ = planner.decoder(_ignored, again=True)
        tried = _tried(planner)
    return tried if isinstance(tried, Unusable) else plan


def _tried(planner: Planner) -> DeviceFacts | Unusable:
    path = planner.cache.path(planner.decoder_key)
    return probe(planner.library_name, path if path.is_file() else None)


def _ignored(_step: str, _fraction: float) -> None:
    """Ignore the progress, since a worker has no progress bar."""
