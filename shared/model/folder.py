"""A prepared model on disk, read by the gateway (tokenizer) and the worker (engine).

    smollm2-135m-shop-int8/
    ├── manifest.json      this module's `Manifest`
    ├── model.onnx         the graph
    ├── model.onnx.data    its weights, mapped into memory
    ├── model.native       the weights for the native engine (`workers/graph/native_layout.py`)
    └── tokenizer.json     for the `tokenizers` library

The manifest is written last and the finished folder is renamed into place, so a folder with a manifest is complete. The
manifest names every file that is opened, all inside the folder. Sizes are checked at every load; sha256 sums only with
`verify=True`, as a worker does before it parses any of the files.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

import msgspec
from msgspec import Struct

from shared.errors import ModelError
from shared.wire.messages import Language

MANIFEST: Final = "manifest.json"
GRAPH: Final = "model.onnx"
GRAPH_DATA: Final = "model.onnx.data"
NATIVE: Final = "model.native"
TOKENIZER: Final = "tokenizer.json"
REMEDY: Final = "run: replyline model prepare"
_MAX_MANIFEST_BYTES: Final = 1_048_576
_MOST: Final = {
    "num_layers": 1_024,
    "num_heads": 1_024,
    "num_kv_heads": 1_024,
    "head_dim": 4_096,
    "hidden_size": 262_144,
    "intermediate_size": 1_048_576,
    "vocab_size": 4_194_304,
    "max_positions": 16_777_216,
}
_MOST_EXPERTS: Final = 1_024

# int8 and fp32 are for the graph of ONNX Runtime's CPU kernels, the others for TensorRT's graph. torch computes the
# weights of either unless they have 8 bits. q4 has no graph: the native engine computes it.
Precision = Literal["int8", "fp32", "fp16", "bf16", "q4"]
Dialect = Literal["cpu", "tensorrt", "native"]


class LinearScaling(Struct, frozen=True, kw_only=True, tag_field="kind", tag="linear"):
    """Positions are divided by `factor` (https://arxiv.org/abs/2306.15595)."""

    factor: float


class Llama3Scaling(Struct, frozen=True, kw_only=True, tag_field="kind", tag="llama3"):
    """Rotary frequency scaling of Llama 3.1.

    Slow rotations, with fewer than `low_freq_factor` turns within `original_positions`, are divided by `factor`; fast
    ones, with more than `high_freq_factor` turns, are unchanged; those between are interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int


class FactorScaling(Struct, frozen=True, kw_only=True, tag_field="kind", tag="factors"):
    """The rotation of each of the `head_dim / 2` pairs is divided by its own factor, fastest first."""

    factors: tuple[float, ...]


class Experts(Struct, frozen=True, kw_only=True):
    """A layer's mixture of experts: a router scores `count` MLPs of `width` for each token, and the `chosen` with the
    highest scores are added, weighted by the softmax of the scores. Of equal scores the lower number is chosen.

    Attributes:
        normalized: the softmax is over the chosen experts' scores, so that the weights sum to 1 (Mixtral, Qwen3);
            else over all scores (OLMoE, Qwen2).
        shared_width: width of the expert that every token passes, weighted by its own sigmoid; 0 without one.
        dense_layers: layers that have one MLP of the model's `intermediate_size` instead.
    """

    count: int
    chosen: int
    width: int
    normalized: bool
    shared_width: int = 0
    dense_layers: tuple[int, ...] = ()


class Architecture(Struct, frozen=True, kw_only=True):
    """The dimensions of a Llama-family decoder, and the differences between its families.

    Attributes:
        rope_theta: base of the rotary embedding's frequencies.
        query_key_norm: RMS norms of each head's query and key before rotation (Qwen3).
        joint_norm: these norms are over all heads of a token together (OLMoE).
        experts: the mixture of experts in its layers; None if every layer has one MLP.
    """

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
    rope_scaling: LinearScaling | Llama3Scaling | FactorScaling | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    query_key_norm: bool = False
    joint_norm: bool = False
    experts: Experts | None = None

    def experts_in(self, layer: int) -> Experts | None:
        """Return the mixture of experts in a layer; None if the layer has one MLP."""
        return None if self.experts is None or layer in self.experts.dense_layers else self.experts

    def mlp_width(self, layer: int) -> int:
        """Return the width of the MLP that every token passes in a layer; 0 without one."""
        experts = self.experts_in(layer)
        return self.intermediate_size if experts is None else experts.shared_width

    @property
    def num_weights(self) -> int:
        """Weights of all matrices."""
        return self._weights(1 if self.experts is None else self.experts.count)

    @property
    def active_weights(self) -> int:
        """Weights of the matrices that compute a token."""
        return self._weights(1 if self.experts is None else self.experts.chosen)

    def _weights(self, experts: int) -> int:
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        per_hidden = self.vocab_size * (1 if self.tied_embedding else 2)
        for layer in range(self.num_layers):
            mixture = self.experts_in(layer)
            per_hidden += attention + 3 * self.mlp_width(layer)
            per_hidden += 0 if mixture is None else mixture.count + 3 * experts * mixture.width
        return self.hidden_size * per_hidden

    @property
    def norm_sizes(self) -> tuple[int, int]:
        """Sizes of the norms of query and key."""
        if self.joint_norm:
            return self.head_dim * self.num_heads, self.head_dim * self.num_kv_heads
        return self.head_dim, self.head_dim


def refuse_experts(architecture: Architecture, command: str, instead: str) -> None:
    """Raise `ModelError` for a mixture of experts, which `command` does not support; `instead` is what to do."""
    if architecture.experts is not None:
        raise ModelError(f"{command} does not support mixtures of {architecture.experts.count} experts; {instead}")


class TemplateMarks(Struct, frozen=True, kw_only=True):
    """The special tokens that frame turns.

    ChatML: `{turn_start}role\\ntext{turn_end}\\n`. Llama 3, after one `{prompt_start}`:
    `{turn_start}role{header_end}\\n\\ntext{turn_end}`.
    """

    kind: Literal["chatml", "llama3"] = "chatml"
    turn_start: str = "<|im_start|>"
    turn_end: str = "<|im_end|>"
    header_end: str | None = None
    prompt_start: str | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """The special tokens that it needs."""
        marks = (self.prompt_start, self.turn_start, self.header_end, self.turn_end)
        return tuple(mark for mark in marks if mark is not None)


CHATML: Final = TemplateMarks()
LLAMA3: Final = TemplateMarks(
    kind="llama3",
    turn_start="<|start_header_id|>",
    turn_end="<|eot_id|>",
    header_end="<|end_header_id|>",
    prompt_start="<|begin_of_text|>",
)


class FileEntry(Struct, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class Source(Struct, frozen=True, kw_only=True):
    """The model that the folder was made from: a readable name and the sha256 of its bytes."""

    name: str
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The description of a prepared model.

    Attributes:
        revision: identifies the numbers that an engine computes; only equal revisions may share KV.
        precision: int8-mlp or fp8-mlp is fp16 with a quantized MLP (`replyline optimize quantize`).
        dialect: the engine that the graph is for. tensorrt has slots of fixed length `max_length`; native has only
            packed weights; cpu may have packed weights next to its graph.
        recipe: what the folder was made from (source, precision, writer) if the revision alone does not say.
        languages: the languages that the model answers in; None if unknown.
        adapter: the adapter that was merged into the weights.
    """

    name: str
    revision: str
    precision: Precision | Literal["int8-mlp", "fp8-mlp"]
    source: Source
    architecture: Architecture
    stop_token_ids: tuple[int, ...]
    chat_template: TemplateMarks
    files: tuple[FileEntry, ...]
    dialect: Dialect = "cpu"
    max_length: int | None = None
    recipe: str | None = None
    languages: tuple[Language, ...] | None = None
    adapter: Source | None = None


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """An existing folder and its manifest. Created by `open`, which checks that the files are there and complete."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Self:
        """Read the manifest, and compare the files' sizes with it, and their sha256 with `verify`.

        Raises:
            ModelError: something is missing or differs; the message has the remedy.
        """
        folder = cls(path, _read_manifest(path))
        opened = {NATIVE} if folder.manifest.dialect == "native" else {GRAPH, GRAPH_DATA}
        unnamed = {*opened, TOKENIZER} - {entry.name for entry in folder.manifest.files}
        if unnamed:
            raise ModelError(f"{path / MANIFEST} does not name {min(unnamed)}, which would be opened; {REMEDY}")
        for entry in folder.manifest.files:
            folder._check(entry, verify=verify)
        return folder

    def read(self, name: str) -> bytes:
        """Return a whole file of the manifest after comparing its sha256.

        Raises:
            ModelError: the file differs from the manifest.
        """
        entry = next(entry for entry in self.manifest.files if entry.name == name)
        data = (self.path / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ModelError(f"{self.path / name} differs from its manifest's sha256; {REMEDY}")
        return data

    @property
    def graph_path(self) -> Path:
        return self.path / GRAPH

    def _check(self, entry: FileEntry, *, verify: bool) -> None:
        file = self.path / entry.name
        if file.resolve().parent != self.path.resolve():
            raise ModelError(f"{self.path / MANIFEST} names {entry.name!r}, which is not in its folder; {REMEDY}")
        if not file.is_file():
            raise ModelError(f"{file} is missing; {REMEDY}")
        size = file.stat().st_size
        if size != entry.size:
            raise ModelError(f"{file} has {size} bytes, its manifest says {entry.size}; {REMEDY}")
        if verify and sha256_of(file) != entry.sha256:
            raise ModelError(f"{file} differs from its manifest's sha256; {REMEDY}")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into `folder`, as the last step of a preparation."""
    encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / MANIFEST).write_bytes(encoded + b"\n")


def file_entry(path: Path) -> FileEntry:
    """Return the entry with size and sha256 of a file that was just written."""
    return FileEntry(name=path.name, size=path.stat().st_size, sha256=sha256_of(path))


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> Manifest:
    try:
        with (path / MANIFEST).open("rb") as file:
            data = file.read(_MAX_MANIFEST_BYTES)
    except OSError as error:
        raise ModelError(f"no prepared model in {path} ({MANIFEST}: {error.strerror}); {REMEDY}") from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelError(f"{path / MANIFEST} is damaged ({error}); {REMEDY}") from error
    wrong = impossible(manifest.architecture)
    if wrong is not None:
        raise ModelError(f"{path / MANIFEST} is damaged ({wrong}); {REMEDY}")
    return manifest


def impossible(architecture: Architecture) -> str | None:
    """Return the first value that no real decoder has, before memory is reserved by it; None if all are possible."""
    for name, most in _MOST.items():
        value = getattr(architecture, name)
        if not 1 <= value <= most:
            return f"{name}={value} is not 1 to {most}"
    experts = architecture.experts
    if experts is not None:
        for name, value, most in (
            ("experts.count", experts.count, _MOST_EXPERTS),
            ("experts.chosen", experts.chosen, experts.count),
            ("experts.width", experts.width, _MOST["intermediate_size"]),
        ):
            if not 1 <= value <= most:
                return f"{name}={value} is not 1 to {most}"
    return None
