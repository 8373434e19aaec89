"""The vocabulary inside a GGUF file as a `tokenizer.json`."""

from typing import Final

from shared.errors import ModelError
from shared.model.tokenizer import bpe_definition
from workers.graph.sources.gguf import GgufSource

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
