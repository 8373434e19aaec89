"""Convert text to token ids and back for byte-level BPE vocabularies (GPT-2's scheme, used by SmolLM2, Llama 3 and
Qwen).

Text is always encoded as plain text: a special token's name inside it (`<|im_start|>`) becomes ordinary tokens, so no
client can open its own turn. Special tokens enter a prompt only by `special_id`.
"""

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import tokenizers

from shared.errors import ModelError
from shared.model.folder import REMEDY, TOKENIZER, ModelFolder

_ASCII_CHARS_PER_TOKEN: Final = 3
_PIECE_CHARS: Final = 4_096
BYTE_LEVEL_SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


class Tokenizer:
    """One vocabulary. Immutable after construction, so any number of threads may use it."""

    def __init__(self, definition: bytes) -> None:
        """Parse the content of a `tokenizer.json`.

        Raises:
            ModelError: it cannot be used.
        """
        try:
            document = msgspec.json.decode(definition, type=dict[str, Any])
            added = document.get("added_tokens", [])
            self._special_ids: dict[str, int] = {t["content"]: t["id"] for t in added if t["special"]}
            self._bytes = _bytes_by_id(document["model"]["vocab"], added)
            # Without its special tokens the library cannot parse their names. They are also removed from the
            # vocabulary, since with `ignore_merges` the library looks up whole words there first.
            document["added_tokens"] = [token for token in added if not token["special"]]
            vocab = document["model"]["vocab"].items()
            document["model"]["vocab"] = {token: i for token, i in vocab if token not in self._special_ids}
            self._encoder = tokenizers.Tokenizer.from_buffer(msgspec.json.encode(document))
        # the library raises a bare Exception for a definition that it cannot read
        except Exception as error:
            raise ModelError(f"the tokenizer's definition cannot be used ({error}); {REMEDY}") from error

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a prepared folder's `tokenizer.json`.

        Raises:
            ModelError: it is missing, unusable, or differs from the manifest.
        """
        return cls(ModelFolder.open(folder).read(TOKENIZER))

    @classmethod
    def byte_level(cls) -> Self:
        """Return a vocabulary that needs no model: the ChatML specials, then one token for each byte."""
        return cls(byte_level_definition())

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    def encode_text(self, text: str) -> list[int]:
        """Return the token ids of `text` as plain text, never a special token's."""
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        return ids

    def count(self, text: str) -> int:
        """Return the number of tokens of `text` as plain text. The library needs 200 bytes of memory for each token, so
        it gets a long text in pieces. Each may add a token."""
        return sum(len(self.encode_text(piece)) for piece in _pieces(text))

    def special_id(self, name: str) -> int:
        """Return the id of a special token.

        Raises:
            ModelError: the vocabulary does not have it.
        """
        try:
            return self._special_ids[name]
        except KeyError:
            raise ModelError(f"the tokenizer has no special token {name!r}; use another model") from None

    def token_bytes(self, token_id: int) -> bytes:
        """Return one token's bytes, which may be part of a UTF-8 character; empty for a special token."""
        return self._bytes[token_id]

    def decode_bytes(self, token_ids: Iterable[int]) -> bytes:
        """Return the bytes of `token_ids`. They are valid UTF-8 if the last token ends a character."""
        return b"".join(map(self._bytes.__getitem__, token_ids))


class EstimatedTokenizer(Tokenizer):
    """The tokenizer of a model on another server. Its real tokens are unknown, so counts are estimated."""

    def count(self, text: str) -> int:
        return estimate_tokens(text)


def open_tokenizer(engine: str, folder: Path) -> Tokenizer:
    """Return the tokenizer for an engine: the folder's for a real model; for the fake engine each byte is a token.

    Raises:
        ModelError: the folder's tokenizer cannot be used.
    """
    if engine == "upstream":
        return EstimatedTokenizer.byte_level()
    return Tokenizer.byte_level() if engine == "fake" else Tokenizer.load(folder)


def _pieces(text: str) -> Iterator[str]:
    """Yield a text's pieces of at most `_PIECE_CHARS`, which begin before a space if they can."""
    begin = 0
    while begin < len(text):
        end = begin + _PIECE_CHARS
        if end < len(text):
            space = text.rfind(" ", begin, end)
            end = space if space > begin else end
        yield text[begin:end]
        begin = end


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens, rather too high: one for three ASCII characters, and one for each other
    character."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    return -(-ascii_chars // _ASCII_CHARS_PER_TOKEN) + len(text) - ascii_chars


def byte_level_definition() -> bytes:
    """Return the `tokenizer.json` of `Tokenizer.byte_level`.

    Ids 0-2 are `BYTE_LEVEL_SPECIALS`; byte `b` has id `3 + b`.
    """
    alphabet = _byte_alphabet()
    tokens = [*BYTE_LEVEL_SPECIALS, *(alphabet[byte] for byte in range(256))]
    return bpe_definition(tokens, merges=[], special_ids=range(len(BYTE_LEVEL_SPECIALS)), split_digits=False)


def bpe_definition(
    tokens: Sequence[str],
    *,
    merges: Sequence[tuple[str, str]],
    special_ids: Iterable[int],
    added_ids: Iterable[int] = (),
    split_digits: bool,
    words: str | None = None,
) -> bytes:
    """Return a `tokenizer.json` of byte-level BPE.

    Args:
        tokens: the token of id `i` at index `i`, in GPT-2's printable alphabet.
        merges: the merges in order of rank.
        special_ids: ids of control tokens.
        added_ids: ids of whole words of text.
        split_digits: make each digit its own token.
        words: regular expression of the words that are merged, in place of GPT-2's; a word that is a token is not
            merged.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    steps: list[dict[str, Any]] = [digits, byte_level] if split_digits else [byte_level]
    if words is not None:
        split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
        steps = [split, byte_level | {"use_regex": False}]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    marked = [(token_id, True) for token_id in special_ids] + [(token_id, False) for token_id in added_ids]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "special": s, **plain} for i, s in sorted(marked)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": words is not None,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": merges,
        },
    }
    return msgspec.json.encode(document)


def _byte_alphabet() -> dict[int, str]:
    """Return the printable character of each byte, as in GPT-2's encoder.py: itself if printable, else one from
    U+0100 up."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + rank) for rank, byte in enumerate(others)}
    return {byte: shifted.get(byte, chr(byte)) for byte in range(256)}


def _bytes_by_id(vocab: Mapping[str, int], added: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    byte_of = {character: byte for byte, character in _byte_alphabet().items()}
    whole = {token["id"]: b"" if token["special"] else token["content"].encode() for token in added}
    size = 1 + max([*vocab.values(), *whole])
    table = [b""] * size
    for token, token_id in vocab.items():
        if token_id not in whole:
            table[token_id] = bytes(byte_of[character] for character in token)
    for token_id, content in whole.items():
        table[token_id] = content
    return tuple(table)


def shown_text(data: bytes) -> str:
    """Decode an answer's bytes as they are shown: invalid bytes are replaced, an incomplete last character is left
    out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)
