"""Load the engine that the settings name, and its tokenizer."""

from dataclasses import dataclass
from pathlib import Path

from shared.errors import ModelError, SettingsError
from shared.model.chat_template import ChatTemplate
from shared.model.folder import CHATML, TOKENIZER, Manifest, ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.process.extras import install_command
from shared.process.hardware import usable_cores
from shared.settings import PREFIX, Settings, WorkerSettings
from shared.telemetry.logs import get_logger
from shared.wire.messages import Language
from workers.engine import Engine, EngineInfo
from workers.engine.unusable import Unusable


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model. `languages`: those that it answers in, None for any. `manifest`: its folder's, None without a
    folder."""

    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    languages: tuple[Language, ...] | None = None
    manifest: Manifest | None = None

    @property
    def info(self) -> EngineInfo:
        return self.engine.info


def load_model(settings: Settings, *, verify: bool = True, beside: LoadedModel | None = None) -> LoadedModel:
    """Load the engine in `worker.engine`.

    Args:
        settings: the process's settings.
        verify: False if the files have just been hashed.
        beside: the model that already serves. Its tokenizer is shared if the file is the same, since parsing one
            blocks for 0.2 s.

    Raises:
        ModelError: the model cannot be loaded; the message has the command that prepares it.
        SettingsError: a setting does not fit the model or machine.
    """
    match settings.worker.engine:
        case "fake":
            return _load_fake(settings)
        case "native":
            return _load_native(settings, settings.model.dir, verify=verify, beside=beside)
        case "onnx":
            return _load_onnx(settings, settings.model.dir, verify=verify, beside=beside)
        case "tensorrt" | "tensorrt-rtx" | "torch":
            return _load_where_usable(settings, verify=verify, beside=beside)
        case "upstream":
            raise SettingsError(
                f"{PREFIX}WORKER__ENGINE=upstream: other servers compute; name an engine of this machine"
            )


def _load_where_usable(settings: Settings, *, verify: bool, beside: LoadedModel | None) -> LoadedModel:
    """Load the model with TensorRT or torch, or with `worker.fallback_engine` if that does not work on this machine."""
    from workers.engine.tensorrt.load_tensorrt import load_tensorrt
    from workers.engine.torch.load_torch import load_torch

    worker = settings.worker
    folder = ModelFolder.open(settings.model.dir, verify=verify)
    if worker.engine == "torch":
        _refuse_beyond_positions(worker, folder)
        found = load_torch(settings, folder)
    else:
        found = load_tensorrt(settings, folder)
    if isinstance(found, Unusable):
        if not worker.fallback_engine:
            raise SettingsError(f"{PREFIX}WORKER__ENGINE={worker.engine}: {found.reason}")
        get_logger().warning(
            "engine_unusable", engine=worker.engine, reason=found.reason, instead=worker.fallback_engine
        )
        load = _load_native if worker.fallback_engine == "native" else _load_onnx
        return load(
            settings, settings.model.dir.with_name(f"{folder.manifest.name}-int8"), verify=verify, beside=beside
        )
    return _loaded(found, folder, beside)


def _load_native(settings: Settings, directory: Path, *, verify: bool, beside: LoadedModel | None) -> LoadedModel:
    """Load the model with the native engine, or with onnx if the machine or folder does not support it."""
    from workers.engine.native.load_native import load_native

    folder = ModelFolder.open(directory, verify=verify)
    _refuse_beyond_positions(settings.worker, folder)
    found = load_native(settings.worker, folder)
    if isinstance(found, Unusable):
        if folder.manifest.dialect == "native":
            raise ModelError(f"{directory} is only for the native engine: {found.reason}")
        get_logger().warning("engine_unusable", engine="native", reason=found.reason, instead="onnx")
        return _load_onnx(settings, directory, verify=False, beside=beside)
    return _loaded(found, folder, beside)


def _load_onnx(settings: Settings, directory: Path, *, verify: bool, beside: LoadedModel | None) -> LoadedModel:
    try:
        from workers.engine.onnx import OnnxEngine
    except ImportError as error:
        raise ModelError(f"the onnx engine is not installed ({error.name}); run: {install_command('onnx')}") from None
    folder = ModelFolder.open(directory, verify=verify)
    if folder.manifest.dialect != "cpu":
        what = (
            "its weights are for engine=native" if folder.manifest.dialect == "native" else "its graph is for TensorRT"
        )
        raise SettingsError(f"{PREFIX}MODEL__DIR={directory}: {what}; run: replyline model prepare --precision int8")
    worker = settings.worker
    _refuse_beyond_positions(worker, folder)
    engine = OnnxEngine(
        folder,
        num_slots=worker.slots_without_gpu,
        max_length=worker.max_length,
        threads=worker.threads or usable_cores(),
    )
    return _loaded(engine, folder, beside)


def _loaded(engine: Engine, folder: ModelFolder, beside: LoadedModel | None) -> LoadedModel:
    manifest = folder.manifest
    shared = beside is not None and _tokenizer_sha256(manifest) == _tokenizer_sha256(beside.manifest)
    tokenizer = beside.tokenizer if beside is not None and shared else Tokenizer.load(folder.path)
    template = ChatTemplate.for_tokenizer(tokenizer, manifest.chat_template)
    return LoadedModel(engine, tokenizer, template, manifest.languages, manifest)


def _tokenizer_sha256(manifest: Manifest | None) -> str | None:
    entries = () if manifest is None else manifest.files
    return next((entry.sha256 for entry in entries if entry.name == TOKENIZER), None)


def _refuse_beyond_positions(worker: WorkerSettings, folder: ModelFolder) -> None:
    longest = folder.manifest.architecture.max_positions
    if worker.max_length > longest:
        raise SettingsError(
            f"{PREFIX}WORKER__MAX_LENGTH={worker.max_length}: {folder.manifest.name} has {longest} positions"
        )


def _load_fake(settings: Settings) -> LoadedModel:
    """Return the fake engine. It serves any version of the registry and needs no files."""
    from workers.engine.fake import FAKE_REVISION, FakeEngine

    model = settings.model
    tokenizer = Tokenizer.byte_level()
    worker = settings.worker
    engine = FakeEngine(
        num_slots=worker.slots_without_gpu,
        max_length=worker.max_length,
        prefill_ms_per_token=worker.fake_prefill_ms_per_token,
        decode_ms_per_step=worker.fake_decode_ms_per_step,
        mixes=worker.fake_mixes,
        revision=model.dir.name if model.dir.parent == model.versions_dir else FAKE_REVISION,
    )
    return LoadedModel(engine, tokenizer, ChatTemplate.for_tokenizer(tokenizer, CHATML))
