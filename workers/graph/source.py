"""What a model is made from: a GGUF file or a Hugging Face folder, opened and checked."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import ModelError
from shared.model_folder import TOKENIZER, ChatTemplate, sha256_of
from shared.tokenizer import Tokenizer
from workers.graph.checkpoint import Checkpoint
from workers.graph.gguf_source import GgufSource
from workers.graph.safetensors_source import SafetensorsSource
from workers.graph.tokenizer import tokenizer_definition

_END_OF_TEXT: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """All that a model's folder is written from. `tokenizer` is the content of its `tokenizer.json`."""

    checkpoint: Checkpoint
    tokenizer: bytes
    chat_template: ChatTemplate
    stop_token_ids: tuple[int, ...]


def open_source(path: Path) -> ModelSource:
    """Open a GGUF file or a Hugging Face folder. Raises `ModelError` where it is damaged or unsupported."""
    if path.is_dir():
        folder = SafetensorsSource.open(path)
        eos = folder.config.eos_token_id
        ends = eos if isinstance(eos, list) else [] if eos is None else [eos]
        return _checked(folder.checkpoint(), _tokenizer_file(path), ends)
    file = GgufSource.open(path)
    ends = [int(file.metadata[key]) for key in _END_OF_TEXT if key in file.metadata]
    return _checked(file.checkpoint(), tokenizer_definition(file), ends)


def source_sha256(path: Path) -> str:
    """The sha256 of a GGUF file, or of the sha256s of the files of a folder that decide what is computed."""
    if not path.is_dir():
        if not path.is_file():
            raise ModelError(f"{path} does not exist; give a GGUF file or a model's folder")
        return sha256_of(path)
    names = sorted([*path.glob("*.safetensors"), path / "config.json", path / TOKENIZER])
    hashes = "".join(f"{file.name} {sha256_of(file)}\n" for file in names if file.is_file())
    return hashlib.sha256(hashes.encode()).hexdigest()


def _tokenizer_file(folder: Path) -> bytes:
    try:
        return (folder / TOKENIZER).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {folder / TOKENIZER} ({error.strerror}); give a model's folder") from error


def _checked(checkpoint: Checkpoint, definition: bytes, ends: list[int]) -> ModelSource:
    template = ChatTemplate()
    tokenizer = Tokenizer(definition)
    vocab_size = checkpoint.architecture.vocab_size
    if tokenizer.vocab_size > vocab_size:
        raise ModelError(f"the tokenizer has {tokenizer.vocab_size} tokens, the model's embedding {vocab_size}")
    # Raises where the model knows no ChatML: it could not be told who speaks.
    tokenizer.special_id(template.turn_start)
    stops = {*ends, tokenizer.special_id(template.turn_end)}
    return ModelSource(
        checkpoint=checkpoint,
        tokenizer=definition,
        chat_template=template,
        stop_token_ids=tuple(sorted(stops)),
    )
