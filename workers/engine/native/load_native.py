"""Load the native engine from the settings and a model's folder, or return why it cannot be used."""

from shared.errors import EngineError, ModelError
from shared.model.folder import NATIVE, REMEDY, ModelFolder
from shared.process.hardware import usable_cores
from shared.settings import WorkerSettings
from workers.engine.native.build import LIBRARY, Built, Recipe, find_built, note_use
from workers.engine.native.engine import NativeEngine
from workers.engine.native.library import Library
from workers.engine.unusable import Unusable
from workers.graph.native_layout import unpackable

_PORTABLE = "portable"


def find_library(worker: WorkerSettings, recipe: Recipe | None = None) -> tuple[Library, Built] | Unusable:
    """Return the loaded library for this machine with the configured kernel, or why it cannot be used.

    With `auto` the portable kernel is not used, since ONNX Runtime's kernels are faster.
    """
    recipe = recipe or Recipe()
    built = find_built(worker.native_library_dir, recipe)
    if isinstance(built, Unusable):
        return built
    folder = recipe.folder(worker.native_library_dir)
    note_use(folder)
    try:
        library = Library.load(folder / LIBRARY, worker.native_kernel)
    except EngineError as error:
        return Unusable(str(error))
    if worker.native_kernel == "auto" and library.kernel == _PORTABLE:
        missing = ", ".join(name for name in recipe.kernels if name != _PORTABLE)
        return Unusable(
            f"this CPU has no instructions for {missing or 'a fast kernel'}; set REPLYLINE_WORKER__ENGINE=onnx"
        )
    return library, built


def unpacked(folder: ModelFolder) -> Unusable | None:
    """Return why the engine cannot compute a folder; None if it has packed weights."""
    if any(entry.name == NATIVE for entry in folder.manifest.files):
        return None
    why = unpackable(folder.manifest.architecture)
    return Unusable(f"{folder.path} has no {NATIVE}" + (f": {why}" if why else f"; {REMEDY} --precision int8"))


def load_native(worker: WorkerSettings, folder: ModelFolder) -> NativeEngine | Unusable:
    """Return an engine, or why it cannot be used: no library, missing or damaged packed weights, no memory."""
    found = unpacked(folder) or find_library(worker)
    if isinstance(found, Unusable):
        return found
    try:
        return NativeEngine(
            folder,
            found[0],
            num_slots=worker.slots_without_gpu,
            max_length=worker.max_length,
            threads=worker.threads or usable_cores(),
        )
    except (EngineError, ModelError) as error:
        return Unusable(str(error))
