"""Sentence embeddings by an ONNX model of the operator's own: any folder with `tokenizer.json` and `model.onnx` (or
`onnx/model.onnx`), as sentence-transformers exports them.

What the model gives of each token is averaged over the text's tokens (mean pooling, N. Reimers and I. Gurevych,
"Sentence-BERT", 2019) and brought to length 1; a model that gives one vector a text has pooled already.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import SettingsError
from shared.settings import FaqSettings

MAX_TOKENS: Final = 256
_BATCH: Final = 32
_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_TOKENS_RANK: Final = 3


class Embedder:
    """Texts to unit vectors, by the CPU. May be called from any thread."""

    def __init__(self, folder: Path) -> None:
        """Raises SettingsError, one line, if the folder does not hold such a model or onnxruntime is missing."""
        model = next((path for name in ("model.onnx", "onnx/model.onnx") if (path := folder / name).is_file()), None)
        tokenizer = folder / "tokenizer.json"
        if model is None or not tokenizer.is_file():
            missing = "model.onnx" if model is None else "tokenizer.json"
            raise SettingsError(f"faq.embeddings_dir={folder}: holds no {missing}; name a sentence-embedding model")
        try:
            import onnxruntime
        except ImportError as error:
            raise SettingsError("faq.embeddings_dir needs onnxruntime: pip install 'replyline[dense]'") from error
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a question is short, and the cores are the model's
        try:
            self._session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # onnxruntime and tokenizers raise their own kinds, all of them of a bad file
            raise SettingsError(f"faq.embeddings_dir={folder}: {' '.join(str(error).split())}") from error
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._inputs = [given.name for given in self._session.get_inputs()]
        unknown = sorted(set(self._inputs) - _INPUTS)
        if unknown:
            raise SettingsError(f"faq.embeddings_dir={folder}: the model wants {unknown[0]!r}, which no text gives")

    @classmethod
    def named_by(cls, settings: FaqSettings) -> Self | None:
        """None where no model is named: then the search is by terms alone. Raises as the constructor."""
        return None if settings.embeddings_dir is None else cls(settings.embeddings_dir)

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
            mask = given["attention_mask"][:, :, None].astype(np.float32)
            vectors = (vectors * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1.0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
