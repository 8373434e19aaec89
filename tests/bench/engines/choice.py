"""Which engines this machine can run, each with the program that measures it; and why the others cannot be run."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, get_args

from msgspec import Struct

from ops.model.prepare import DEFAULT_MODEL, DEMO_MODEL, default_source
from shared.errors import ModelError
from shared.model.folder import NATIVE, Manifest, ModelFolder
from shared.process.extras import install_command
from shared.settings import PREFIX, Settings, WorkerSettings
from tests.bench.engines.hugging_face import DTYPES
from tests.bench.engines.llama import BATCHED, PROMPTS
from tests.support.servers.llama_server import Q4_0
from workers.engine.native.load_native import find_library
from workers.engine.tensorrt.probe import probe
from workers.engine.torch.slots import PRECISIONS
from workers.engine.unusable import Unusable

ENGINES: Final = ("native", "onnx", "torch", "tensorrt", "tensorrt-rtx", "transformers", "llama.cpp")
_TORCH_PYTHON: Final = Path(__file__).parents[3] / ".venv-torch/bin/python"
_TORCH_REMEDY: Final = "run: ops/setup/torch"


class NotRun(Struct, frozen=True, kw_only=True):
    """An engine that was asked for, and in one line why there is nothing of it."""

    engine: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One process per round. `argv` lacks the sizes, which all receive; `env` lacks the prefix of settings.

    `gguf` is for llama.cpp, whose two programs, in the folder `llama`, have separate command lines; `source` is the
    folder that transformers loads.
    """

    name: str
    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    gguf: Path | None = None
    llama: Path = Path()
    source: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Where the engines are that are not ours; without a `gguf` llama.cpp has the demo's model, in Q4_0."""

    llama: Path
    gguf: Path | None
    source: Path | None


def plan(names: Sequence[str], settings: Settings, peers: Peers, threads: int) -> tuple[list[Planned], list[NotRun]]:
    """What to run for each engine, in this order, and what cannot be run. Raises `ModelError` without a model."""
    manifest = ModelFolder.open(settings.model.dir).manifest
    found: list[Planned] = []
    missing: list[NotRun] = []
    for name in names:
        match name:
            case "transformers":
                planned = _transformers(manifest, peers, threads)
            case "llama.cpp":
                planned = _llama(manifest, peers)
            case _:
                planned = _ours(name, settings, manifest)
        if isinstance(planned, str):
            missing.append(NotRun(engine=name, reason=planned))
        else:
            found += planned
    return found, missing


def torch_python(module: str = "torch") -> str | None:
    """The interpreter that has `module`: `.venv-torch`'s where it exists, else this one; None where it has not."""
    if _TORCH_PYTHON.is_file():
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        done = subprocess.run([_TORCH_PYTHON, "-c", look], capture_output=True, check=False)
        return str(_TORCH_PYTHON) if done.returncode == 0 else None
    return sys.executable if importlib.util.find_spec(module) is not None else None


def _ours(name: str, settings: Settings, manifest: Manifest) -> list[Planned] | str:
    """Return a plan for each prepared folder of the model that the engine can load, or the reason for having no
    plan."""
    if name not in get_args(WorkerSettings.model_fields["engine"].annotation):
        return "this version has no such engine"
    python: str | None = sys.executable
    if name == "torch" and (python := torch_python()) is None:
        return f"torch is not installed; {_TORCH_REMEDY}"
    if name == "onnx" and importlib.util.find_spec("onnxruntime") is None:
        return f"onnxruntime is not installed; run: {install_command('onnx')}"
    if name.startswith("tensorrt") or name == "native":
        usable = find_library(settings.worker) if name == "native" else probe(name)
        if isinstance(usable, Unusable):
            return usable.reason
    folders = {
        folder.manifest.precision: folder
        for folder in prepared(settings.model.dir.parent, manifest.name)
        if takes(name, folder.manifest)
    }
    if not folders:
        precision = {"native": "int8", "onnx": "int8", "torch": "bf16"}.get(name, "fp16")
        return f"no folder of {manifest.name} for it; run: replyline model prepare --precision {precision}"
    return [
        Planned(
            name=f"{name} {folder.manifest.precision}",
            argv=(str(python), "-m", "tests.bench.engines.measure"),
            env={f"{PREFIX}WORKER__ENGINE": name, f"{PREFIX}MODEL__DIR": str(folder.path)},
        )
        for folder in folders.values()
    ]


def takes(name: str, manifest: Manifest) -> bool:
    """Whether an engine computes what a folder holds."""
    if name == "native":
        return any(entry.name == NATIVE for entry in manifest.files)
    if name == "torch":
        return manifest.precision in PRECISIONS
    if name == "onnx":
        return manifest.dialect == "cpu"
    return manifest.dialect.startswith("tensorrt")


def prepared(directory: Path, name: str) -> list[ModelFolder]:
    """The whole folders of a model, by their names."""
    folders: list[ModelFolder] = []
    for path in sorted(directory.glob(f"{name}-*")):
        with suppress(ModelError):
            folders.append(ModelFolder.open(path))
    return [folder for folder in folders if folder.manifest.name == name]


def _transformers(manifest: Manifest, peers: Peers, threads: int) -> list[Planned] | str:
    python = torch_python("transformers")
    if python is None:
        return f"transformers is not installed; {_TORCH_REMEDY}"
    source = peers.source
    if source is None:
        if manifest.name != DEFAULT_MODEL:
            return f"--source is not given: what {manifest.name} was prepared from"
        try:
            source = default_source()
        except ModelError as error:
            return str(error)
    argv = (python, "-m", "tests.bench.engines.measure", "--threads", str(threads), "--dtype")
    return [Planned(name=f"transformers {dtype}", argv=(*argv, dtype), source=source) for dtype in DTYPES]


def _llama(manifest: Manifest, peers: Peers) -> list[Planned] | str:
    folder, gguf = peers.llama.resolve(), peers.gguf
    if gguf is None:
        if manifest.name not in {DEFAULT_MODEL, DEMO_MODEL}:
            return f"--gguf is not given: what llama.cpp has for {manifest.name}"
        gguf = folder / Q4_0.name
    missing = [path for path in (folder / BATCHED, folder / PROMPTS, gguf) if not path.is_file()]
    if missing:
        return f"{missing[0]} is missing; run: ops/setup/llama-server"
    return [Planned(name=f"llama.cpp {gguf.stem.lower()}", gguf=gguf.resolve(), llama=folder)]
