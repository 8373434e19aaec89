"""Sentence embeddings by ONNX models of the operator's own: a folder with `tokenizer.json` and `model.onnx` (or
`onnx/model.onnx`), as sentence-transformers exports them; or one such folder a language, `en/` and `zh/`.

What the model gives of each token is averaged over the text's tokens (mean pooling, N. Reimers and I. Gurevych,
"Sentence-BERT", 2019), or the first token's is taken where `1_Pooling/config.json` says so; then it is brought to
length 1. A model that gives one vector a text has pooled already.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.errors import SettingsError
from shared.faq.entries import LANGUAGES
from shared.faq.words.fold import plain
from shared.process.extras import install_command
from shared.settings import FaqSettings
from shared.wire.messages import Language

MAX_TOKENS: Final = 256
POOLING_FILE: Final = "1_Pooling/config.json"
_BATCH: Final = 32
_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_TOKENS_RANK: Final = 3
_MODES: Final = "pooling_mode_"

Pooling = Literal["mean", "cls"]


class Encoder:
    """One model: texts to unit vectors, by the CPU. May be called from any thread."""

    def __init__(self, folder: Path) -> None:
        """Open the folder. Raises SettingsError, one line, if the folder does not hold such a model or onnxruntime is
        missing."""
        model, tokenizer = _model_in(folder), folder / "tokenizer.json"
        if model is None or not tokenizer.is_file():
            missing = "model.onnx" if model is None else "tokenizer.json"
            raise SettingsError(
                f"REPLYLINE_FAQ__EMBEDDINGS_DIR={folder}: holds no {missing}; name a sentence-embedding model"
            )
        try:
            import onnxruntime
        except ImportError as error:
            raise SettingsError(
                f"REPLYLINE_FAQ__EMBEDDINGS_DIR needs onnxruntime: {install_command('dense')}"
            ) from error
        from tokenizers import Tokenizer

        self._pooling = _pooling_of(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a question is short, and the cores are the model's
        try:
            self._session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # onnxruntime and tokenizers raise their own kinds, all of them of a bad file
            raise SettingsError(f"REPLYLINE_FAQ__EMBEDDINGS_DIR={folder}: {' '.join(str(error).split())}") from error
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._inputs = [given.name for given in self._session.get_inputs()]
        unknown = sorted(set(self._inputs) - _INPUTS)
        if unknown:
            raise SettingsError(
                f"REPLYLINE_FAQ__EMBEDDINGS_DIR={folder}: the model wants {unknown[0]!r}, which no text gives"
            )

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[texts, dimensions], each of length 1; 0 where a text has no token."""
        batches = [self._embed(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)]
        return np.concatenate(batches)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        encoded = self._tokenizer.encode_batch(list(texts))
        given = {
            "input_ids": np.array([text.ids for text in encoded], dtype=np.int64),
            "attention_mask": np.array([text.attention_mask for text in encoded], dtype=np.int64),
            "token_type_ids": np.array([text.type_ids for text in encoded], dtype=np.int64),
        }
        vectors = self._session.run(None, {name: given[name] for name in self._inputs})[0].astype(np.float32)
        if vectors.ndim == _TOKENS_RANK:
            vectors = pooled(vectors, given["attention_mask"], self._pooling)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


class Embedder:
    """Texts to unit vectors, by the one model or by the language's own. May be called from any thread."""

    def __init__(self, folder: Path) -> None:
        """Open the folders. Raises SettingsError as `Encoder`. A folder that is for languages may lack one: that is
        searched by terms."""
        own = [language for language in LANGUAGES if (folder / language).is_dir()]
        self._encoders: Mapping[Language, Encoder]
        if own and _model_in(folder) is None:
            self._encoders = {language: Encoder(folder / language) for language in own}
        else:
            self._encoders = dict.fromkeys(LANGUAGES, Encoder(folder))

    @classmethod
    def named_by(cls, settings: FaqSettings) -> Self | None:
        """Return the embedder of the folder named; None where no model is named: then the search is by terms alone.
        Raises as the constructor."""
        return None if settings.embeddings_dir is None else cls(settings.embeddings_dir)

    def __call__(self, texts: Sequence[str], language: Language) -> NDArray[np.float32] | None:
        """[texts, dimensions] of the language's model, each of length 1; None where it has none. Texts are read as the
        search reads them, in plain characters."""
        encoder = self._encoders.get(language)
        return None if encoder is None else encoder([plain(text) for text in texts])


def pooled(tokens: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling) -> NDArray[np.float32]:
    """[texts, dimensions] of `tokens` [texts, tokens, dimensions]: the first token's, or the mean of those that `mask`
    [texts, tokens] names."""
    if pooling == "cls":
        return tokens[:, 0]
    weights = mask[:, :, None].astype(np.float32)
    return np.asarray((tokens * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0), dtype=np.float32)


def _model_in(folder: Path) -> Path | None:
    return next((path for name in ("model.onnx", "onnx/model.onnx") if (path := folder / name).is_file()), None)


def _pooling_of(folder: Path) -> Pooling:
    """Return the pooling that the folder names; the mean where it names none."""
    path = folder / POOLING_FILE
    if not path.is_file():
        return "mean"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsError(f"REPLYLINE_FAQ__EMBEDDINGS_DIR={folder}: {POOLING_FILE}: {error}") from error
    modes = {name.removeprefix(_MODES) for name, on in config.items() if name.startswith(_MODES) and on is True}
    if modes == {"cls_token"}:
        return "cls"
    if modes == {"mean_tokens"}:
        return "mean"
    named = ", ".join(sorted(modes)) or "nothing"
    raise SettingsError(
        f"REPLYLINE_FAQ__EMBEDDINGS_DIR={folder}: pools by {named}; only cls_token or mean_tokens can be done"
    )
