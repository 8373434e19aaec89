"""`replyline engine build`: build a model's TensorRT plans before a worker needs them, with a progress bar."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder
from shared.settings import PREFIX, Settings, WorkerSettings
from workers.engine.tensorrt.build import import_library
from workers.engine.tensorrt.load_tensorrt import ANY_SM, Planner
from workers.engine.tensorrt.plans import PlanCache, PlanShapes
from workers.engine.tensorrt.probe import DeviceFacts, probe
from workers.engine.tensorrt.shapes import fit_shapes, plan_shapes, unmet
from workers.engine.unusable import Unusable


def build_engine(settings: Settings, console: Console) -> None:
    """Build the plans of `worker.engine` for `model.dir` unless they exist; print their path.

    TensorRT builds on the GPU for which the plan is made; TensorRT for RTX needs no GPU. Raises `ModelError` if the
    library, the GPU or the graph is not suitable, `SettingsError` if the slots are too short.
    """
    name = settings.worker.engine
    folder = ModelFolder.open(settings.model.dir, verify=True)
    plan_shapes(settings.worker, folder, max(1, settings.worker.slots))
    gpu = _gpu(name)
    shapes = _shapes(settings.worker, folder, gpu)
    sm = ANY_SM if gpu is None else gpu.sm
    library = import_library(name)
    reason = unmet(folder.manifest, None if sm == ANY_SM else sm)
    if reason is not None:
        raise ModelError(reason)
    planner = Planner(folder, name, library, sm, shapes, PlanCache(settings.worker.plans_dir))
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("plan", total=1.0)

        def report(step: str, fraction: float) -> None:
            bar.update(task, description=step, completed=fraction)

        _, built = planner.decoder(report)
        planner.sampler(report)
    how = "built" if built else "kept already"
    console.print(f"plan {how}: {planner.cache.path(planner.decoder_key)}", soft_wrap=True)


def _shapes(worker: WorkerSettings, folder: ModelFolder, gpu: DeviceFacts | None) -> PlanShapes:
    if gpu is not None:
        return fit_shapes(worker, folder, gpu)[0]
    if not worker.slots:
        raise SettingsError(f"{PREFIX}WORKER__SLOTS=0: {worker.engine} builds without a GPU; set the number of slots")
    return plan_shapes(worker, folder, worker.slots)


def _gpu(library: str) -> DeviceFacts | None:
    """Return the GPU for which a plan is built; None for any. TensorRT's libraries end the process if there is no
    GPU."""
    if library == "tensorrt-rtx":
        return None
    found = probe(library)
    if isinstance(found, Unusable):
        raise ModelError(f"{library} builds on the GPU that the plan is for: {found.reason}")
    return found
