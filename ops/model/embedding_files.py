"""Prepare sentence embeddings as folders for the FAQ's search: the demo's, a table of token vectors, and better ones.

The demo's table is part of the PyPI distribution `wordllama` (MIT), which is installed without its dependencies. The
vector of a text is the mean of its tokens' vectors (D. L. Miller, "WordLlama: Recycled Token Embeddings from Large
Language Models", 2024), so the model is one look-up.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ops.model.e5 import write_e5
from ops.model.embeddings import E5, RECIPE_FILE, WORDLLAMA, Source
from ops.model.prepare import put_in_place, workshop_of
from workers.graph.sources.safetensors import tensors_of

_OPSET: Final = 18
_IR_VERSION: Final = 10


def prepare_embeddings(target_dir: Path, source: Source) -> Path:
    """Write `target_dir/NAME/` of the source, unless it exists and was made from the same files; return it.

    It contains `model.onnx` (to token_embeddings [texts, tokens, dimensions]) and `tokenizer.json`. The folder is
    created atomically. Raises `ModelError` if the distribution is missing or not the pinned version.
    """
    target = target_dir / source.name
    if source.is_prepared(target):
        return target
    files = [source.file(name) for name in source.sha256]
    target_dir.mkdir(parents=True, exist_ok=True)
    with workshop_of(target) as workshop:
        _WRITERS[source.name](workshop.path, files)
        (workshop.path / RECIPE_FILE).write_text(source.recipe, encoding="ascii")
        put_in_place(workshop, target)
    return target


def _write_wordllama(folder: Path, files: Sequence[Path]) -> None:
    table, tokenizer = files
    (vectors,) = tensors_of(table).values()
    (folder / "model.onnx").write_bytes(_look_up(vectors.read().astype(np.float16)))
    (folder / "tokenizer.json").write_text(_plain(tokenizer), encoding="utf-8")


def _look_up(table: NDArray[np.float16]) -> bytes:
    """Return an ONNX model that looks up token vectors. The table is kept in 16 bits; only the rows that are looked up
    are converted."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Cast", ["rows"], ["token_embeddings"], to=TensorProto.FLOAT),
        ],
        "look_up",
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


_WRITERS: Final[Mapping[str, Callable[[Path, Sequence[Path]], None]]] = {
    WORDLLAMA.name: _write_wordllama,
    E5.name: write_e5,
}
"""Write `model.onnx` and `tokenizer.json` into a folder, from a source's files."""
