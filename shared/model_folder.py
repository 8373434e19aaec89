"""A prepared model on disk: what the gateway (tokenizer) and the worker (engine) both read.

    smollm2-135m-instruct-int8/
    ├── manifest.json      this module's `Manifest`
    ├── model.onnx         the graph
    ├── model.onnx.data    its weights, mapped into memory
    └── tokenizer.json     as the `tokenizers` library reads it

The manifest is written last and the folder is renamed into place whole, so a folder that has one is complete. Sizes
are compared at every load; the sha256 of each file only where `verify=True` asks for it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

import msgspec
from msgspec import Struct

from shared.errors import ModelError

MANIFEST: Final = "manifest.json"
GRAPH: Final = "model.onnx"
GRAPH_DATA: Final = "model.onnx.data"
TOKENIZER: Final = "tokenizer.json"
REMEDY: Final = "run: replyline model prepare"

Precision = Literal["int8", "fp32"]


class Architecture(Struct, frozen=True, kw_only=True):
    """The numbers of a Llama-family decoder. `rope_theta` is the base of the rotary embedding's frequencies."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    rope_theta: float
    norm_epsilon: float
    tied_embedding: bool


class ChatTemplate(Struct, frozen=True, kw_only=True):
    """How turns are framed. ChatML: `{turn_start}role\\ntext{turn_end}\\n`, the two marks being special tokens."""

    kind: Literal["chatml"] = "chatml"
    turn_start: str = "<|im_start|>"
    turn_end: str = "<|im_end|>"


class FileEntry(Struct, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class Source(Struct, frozen=True, kw_only=True):
    """What the folder was made from: a name for people and the sha256 of its bytes."""

    name: str
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """`revision` names the numbers an engine computes: equal revisions may share KV, others must not."""

    name: str
    revision: str
    precision: Precision
    source: Source
    architecture: Architecture
    stop_token_ids: tuple[int, ...]
    chat_template: ChatTemplate
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """An existing folder and its manifest. Made by `open`, which checks that the files are there and whole."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Self:
        """Read `path`'s manifest and compare the files' sizes with it; with `verify` their sha256 too.

        Raises `ModelError` with the remedy where anything is missing or differs.
        """
        folder = cls(path, _read_manifest(path))
        for entry in folder.manifest.files:
            folder._check(entry, verify=verify)
        return folder

    @property
    def graph_path(self) -> Path:
        return self.path / GRAPH

    @property
    def tokenizer_path(self) -> Path:
        return self.path / TOKENIZER

    def _check(self, entry: FileEntry, *, verify: bool) -> None:
        file = self.path / entry.name
        if not file.is_file():
            raise ModelError(f"{file} is missing; {REMEDY}")
        size = file.stat().st_size
        if size != entry.size:
            raise ModelError(f"{file} has {size} bytes, its manifest says {entry.size}; {REMEDY}")
        if verify and sha256_of(file) != entry.sha256:
            raise ModelError(f"{file} differs from its manifest's sha256; {REMEDY}")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest` into `folder`: the last step of a preparation."""
    encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / MANIFEST).write_bytes(encoded + b"\n")


def file_entry(path: Path) -> FileEntry:
    """Size and sha256 of a file that has just been written."""
    return FileEntry(name=path.name, size=path.stat().st_size, sha256=sha256_of(path))


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> Manifest:
    try:
        data = (path / MANIFEST).read_bytes()
    except OSError as error:
        raise ModelError(f"no prepared model in {path} ({error.strerror}); {REMEDY}") from error
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ModelError(f"{path / MANIFEST} is damaged ({error}); {REMEDY}") from error
