"""Which engine the settings ask for, and the tokenizer that goes with it."""

import os
from dataclasses import dataclass

from shared.errors import ModelError, SettingsError
from shared.model_folder import CHATML, ModelFolder
from shared.model_folder import ChatTemplate as TemplateNames
from shared.settings import PREFIX, Settings
from shared.tokenizer import Tokenizer
from workers.conversation import ChatTemplate
from workers.engine import Engine


@dataclass(frozen=True, slots=True)
class LoadedModel:
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate


def load_model(settings: Settings) -> LoadedModel:
    """Load what `worker.engine` names. Raises `ModelError` with the command that prepares it, `SettingsError`."""
    if settings.worker.engine == "fake":
        return _load_fake(settings)
    return _load_onnx(settings)


def _load_onnx(settings: Settings) -> LoadedModel:
    try:
        from workers.engine.onnx import OnnxEngine
    except ImportError as error:
        raise ModelError(
            f"the onnx engine is not installed ({error.name}); run: pip install 'replyline[onnx]'"
        ) from None
    folder = ModelFolder.open(settings.model.dir, verify=True)
    worker = settings.worker
    longest = folder.manifest.architecture.max_positions
    if worker.max_length > longest:
        raise SettingsError(
            f"{PREFIX}WORKER__MAX_LENGTH={worker.max_length}: {folder.manifest.name} has {longest} positions"
        )
    engine = OnnxEngine(
        folder,
        num_slots=worker.slots,
        max_length=worker.max_length,
        threads=worker.threads or os.cpu_count() or 1,
    )
    tokenizer = Tokenizer.load(settings.model.dir)
    return LoadedModel(engine, tokenizer, chat_template(tokenizer, folder.manifest.chat_template))


def _load_fake(settings: Settings) -> LoadedModel:
    from workers.engine.fake import FakeEngine

    tokenizer = Tokenizer.byte_level()
    worker = settings.worker
    engine = FakeEngine(
        num_slots=worker.slots,
        max_length=worker.max_length,
        prefill_ms_per_token=worker.fake_prefill_ms_per_token,
        decode_ms_per_step=worker.fake_decode_ms_per_step,
    )
    return LoadedModel(engine, tokenizer, chat_template(tokenizer, CHATML))


def chat_template(tokenizer: Tokenizer, names: TemplateNames) -> ChatTemplate:
    """The template in the ids of one vocabulary. Raises `ModelError` where it lacks one of the marks."""
    return ChatTemplate(
        start_id=tokenizer.special_id(names.turn_start),
        end_id=tokenizer.special_id(names.turn_end),
        header_end_id=None if names.header_end is None else tokenizer.special_id(names.header_end),
        prompt_start_id=None if names.prompt_start is None else tokenizer.special_id(names.prompt_start),
        encode=tokenizer.encode_text,
        token_bytes=tokenizer.token_bytes,
    )
