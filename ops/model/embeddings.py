"""Prepare the demo's sentence embeddings, a table of token vectors, as a folder for the FAQ's search. Find prepared
ones.

The table is part of the PyPI distribution `wordllama` (MIT), of which only two files are used: its code is never
imported, and it is installed without its dependencies. The vector of a text is the mean of its tokens' vectors (D. L.
Miller, "WordLlama: Recycled Token Embeddings from Large Language Models", 2024), so the model is one look-up.
"""

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ops.model.prepare import put_in_place, workshop_of
from shared.errors import ModelError
from shared.model.folder import sha256_of
from shared.settings import Settings
from workers.graph.sources.safetensors import tensors_of

EMBEDDINGS: Final = "wordllama-256"

_DISTRIBUTION: Final = "wordllama"
_VERSION: Final = "0.4.0.post1"
_INSTALL: Final = f"run: pip install --no-deps {_DISTRIBUTION}=={_VERSION}"
_TABLE: Final = "wordllama/weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_SHA256: Final = {
    _TABLE: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    _TOKENIZER: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}
# Part of the folder's identity: increase it if the same source files would give a different folder.
_WRITER_VERSION: Final = 1
_RECIPE: Final = hashlib.sha256(f"{'/'.join(_SHA256.values())}/{_WRITER_VERSION}".encode()).hexdigest()
_RECIPE_FILE: Final = "recipe"
_OPSET: Final = 18
_IR_VERSION: Final = 10


def prepare_embeddings(target_dir: Path) -> Path:
    """Write `target_dir/wordllama-256/`, unless it exists and was made from the same files; return it.

    It contains `model.onnx` (input_ids [texts, tokens] to token_embeddings [texts, tokens, 256]) and `tokenizer.json`,
    which adds no special tokens. The folder is created atomically. Raises `ModelError` if the distribution is missing
    or not the pinned version.
    """
    target = target_dir / EMBEDDINGS
    if _is_prepared(target):
        return target
    table, tokenizer = (_installed(name) for name in _SHA256)
    target_dir.mkdir(parents=True, exist_ok=True)
    with workshop_of(target) as workshop:
        folder = workshop.path
        (vectors,) = tensors_of(table).values()
        (folder / "model.onnx").write_bytes(_look_up(vectors.read().astype(np.float16)))
        (folder / "tokenizer.json").write_text(_plain(tokenizer), encoding="utf-8")
        (folder / _RECIPE_FILE).write_text(_RECIPE, encoding="ascii")
        put_in_place(workshop, target)
    return target


def is_installed() -> bool:
    """Return whether any version is installed."""
    try:
        importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def with_prepared_embeddings(settings: Settings) -> Settings:
    """Return the settings with the embeddings prepared next to the model, unless others are set. Used for processes on
    a developer's machine; a separately started worker uses only its own settings."""
    prepared = settings.model.dir.parent / EMBEDDINGS
    if settings.faq.embeddings_dir is not None or not _is_prepared(prepared):
        return settings
    return settings.model_copy(update={"faq": settings.faq.model_copy(update={"embeddings_dir": prepared})})


def embeddings_env(settings: Settings) -> dict[str, str]:
    """Return the setting for a child process, by its name without the prefix; empty if no embeddings are set."""
    folder = settings.faq.embeddings_dir
    return {} if folder is None else {"FAQ__EMBEDDINGS_DIR": str(folder)}


def searched_by(settings: Settings) -> str:
    """Return a description of the FAQ's search."""
    folder = settings.faq.embeddings_dir
    return "terms alone" if folder is None else f"terms and {folder.name}"


def _is_prepared(folder: Path) -> bool:
    """Return whether the folder was made from the pinned files by this version of the writer."""
    try:
        return (folder / _RECIPE_FILE).read_text(encoding="ascii") == _RECIPE
    except (OSError, ValueError):
        return False


def _installed(name: str) -> Path:
    try:
        path = Path(str(importlib.metadata.distribution(_DISTRIBUTION).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        raise ModelError(f"the demo's embeddings are not installed; {_INSTALL}") from None
    if not path.is_file():
        raise ModelError(f"{_DISTRIBUTION} is installed without its {Path(name).name}; {_INSTALL} --force-reinstall")
    if sha256_of(path) != _SHA256[name]:
        raise ModelError(f"{path} is not that of version {_VERSION}; {_INSTALL} --force-reinstall")
    return path


def _look_up(table: NDArray[np.float16]) -> bytes:
    """Return an ONNX model that looks up token vectors. The table is kept in 16 bits; only the rows that are looked up
    are converted."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Cast", ["rows"], ["token_embeddings"], to=TensorProto.FLOAT),
        ],
        EMBEDDINGS,
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "tokens"])],
        [helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, ["texts", "tokens", table.shape[1]])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=[helper.make_opsetid("", _OPSET)])
    return bytes(model.SerializeToString())


def _plain(tokenizer: Path) -> str:
    """Return the tokenizer without special tokens, truncation and padding."""
    config = json.loads(tokenizer.read_text(encoding="utf-8"))
    config |= {"post_processor": None, "truncation": None, "padding": None}
    return json.dumps(config, ensure_ascii=False)
