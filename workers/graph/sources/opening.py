"""Open the files from which a model's folder is prepared, a GGUF file or a Hugging Face folder, and check that
Replyline supports the model."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shared.errors import ModelError
from shared.model.folder import CHATML, LLAMA3, TOKENIZER, TemplateMarks, sha256_of
from shared.model.tokenizer import Tokenizer, bpe_definition
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.sources.gguf import GgufSource
from workers.graph.sources.safetensors import SafetensorsSource

# llama.cpp's token types.
_CONTROL: Final = 3
_USER_DEFINED: Final = 4

# llama.cpp's name of the pre-tokenizer → whether digits are split one by one. transformers' own GGUF import drops
# that step for SmolLM2 and so gives other ids for numbers; llama.cpp's /tokenize agrees with what is written here.
_SPLIT_DIGITS: Final = {"smollm": True, "gpt-2": False, "llama-bpe": False}
# Of Llama 3's tokenizer.json; llama.cpp's `LLAMA_VOCAB_PRE_TYPE_LLAMA3` is the same.
_LLAMA_3_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_definition(source: GgufSource) -> bytes:
    """Return the content of `tokenizer.json`. Raises `ModelError` for a vocabulary that is not byte-level BPE."""
    model = source.field("tokenizer.ggml.model", str)
    splitting = source.field("tokenizer.ggml.pre", str)
    if model != "gpt2" or splitting not in _SPLIT_DIGITS:
        raise ModelError(
            f"tokenizer {model}/{splitting} of {source.path.name} is not supported; "
            f"use a model with gpt2/{' or gpt2/'.join(_SPLIT_DIGITS)}, or its safetensors folder"
        )
    types = source.field("tokenizer.ggml.token_type", list)
    merges = source.field("tokenizer.ggml.merges", list)
    return bpe_definition(
        source.field("tokenizer.ggml.tokens", list),
        merges=[_pair(merge) for merge in merges],
        special_ids=[token_id for token_id, kind in enumerate(types) if kind == _CONTROL],
        added_ids=[token_id for token_id, kind in enumerate(types) if kind == _USER_DEFINED],
        split_digits=_SPLIT_DIGITS[splitting],
        words=_LLAMA_3_WORDS if splitting == "llama-bpe" else None,
    )


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


_END_OF_TEXT: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """All that a model's folder is written from. `tokenizer` is the content of its `tokenizer.json`."""

    checkpoint: Checkpoint
    tokenizer: bytes
    chat_template: TemplateMarks
    stop_token_ids: tuple[int, ...]


class _Vocabulary(Struct, frozen=True, kw_only=True):
    type: str | None = None
    byte_fallback: bool = False


class _Definition(Struct, frozen=True, kw_only=True):
    """The part of a `tokenizer.json` that distinguishes byte-level BPE from SentencePiece's kinds."""

    model: _Vocabulary


def open_source(path: Path) -> ModelSource:
    """Open a GGUF file or a Hugging Face folder. Raises `ModelError` if it is damaged or unsupported."""
    try:
        return _open(path)
    # In a damaged file that can still be parsed, the first wrong number or field raises any of these.
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError) as error:
        cause = " ".join(str(error).split())
        raise ModelError(f"{path} is damaged ({type(error).__name__}: {cause}); fetch it again") from error


def _open(path: Path) -> ModelSource:
    if path.is_dir():
        folder = SafetensorsSource.open(path)
        return _checked(folder.checkpoint(), _tokenizer_file(path), folder.config.stop_token_ids)
    file = GgufSource.open(path)
    ends = [int(file.metadata[key]) for key in _END_OF_TEXT if key in file.metadata]
    return _checked(file.checkpoint(), tokenizer_definition(file), ends)


def source_sha256(path: Path) -> str:
    """Return the sha256 of a GGUF file, or of the sha256s of the files of a folder that decide what is computed."""
    if not path.is_dir():
        if not path.is_file():
            raise ModelError(f"{path} does not exist; give a GGUF file or a model's folder")
        return sha256_of(path)
    names = sorted([*path.glob("*.safetensors"), path / "config.json", path / TOKENIZER])
    hashes = "".join(f"{file.name} {sha256_of(file)}\n" for file in names if file.is_file())
    return hashlib.sha256(hashes.encode()).hexdigest()


def _tokenizer_file(folder: Path) -> bytes:
    path = folder / TOKENIZER
    try:
        definition = path.read_bytes()
        vocabulary = msgspec.json.decode(definition, type=_Definition).model
    except OSError as error:
        raise ModelError(f"cannot read {path} ({error.strerror}); give a model's folder") from error
    except msgspec.MsgspecError as error:
        raise ModelError(f"{path} is no tokenizer's definition ({error}); fetch it again") from error
    if vocabulary.type not in {"BPE", None} or vocabulary.byte_fallback:
        kind = f"{vocabulary.type}{' with byte_fallback' if vocabulary.byte_fallback else ''}"
        raise ModelError(f"{path}: a vocabulary of kind {kind!r} is not supported; use a model with byte-level BPE")
    return definition


def _checked(checkpoint: Checkpoint, definition: bytes, ends: list[int]) -> ModelSource:
    tokenizer = Tokenizer(definition)
    vocab_size = checkpoint.architecture.vocab_size
    if tokenizer.vocab_size > vocab_size:
        raise ModelError(f"the tokenizer has {tokenizer.vocab_size} tokens, the model's embedding {vocab_size}")
    template = _template(tokenizer)
    stops = {*ends, tokenizer.special_id(template.turn_end)}
    return ModelSource(
        checkpoint=checkpoint,
        tokenizer=definition,
        chat_template=template,
        stop_token_ids=tuple(sorted(stops)),
    )


def _template(tokenizer: Tokenizer) -> TemplateMarks:
    """Return the template whose marks the vocabulary has: without them a prompt could not mark the roles."""
    for template in (CHATML, LLAMA3):
        with suppress(ModelError):
            for mark in template.marks:
                tokenizer.special_id(mark)
            return template
    raise ModelError(
        f"the tokenizer has neither ChatML's special tokens ({', '.join(CHATML.marks)}) "
        f"nor Llama 3's ({', '.join(LLAMA3.marks)}); use a model that was trained to chat with one of them"
    )
