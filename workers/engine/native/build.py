"""Compile the native CPU engine's C sources to one shared library, which a folder keeps.

`engine.c` is compiled once, `step.c` once for each kernel of the architecture. Nothing asks for this very machine's
instructions: one compiler gives the same bytes everywhere, and the library picks a kernel when it is loaded.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shared.process.clock import now_unix_ms
from workers.engine.native.compiler import Compiler, compilers, libc
from workers.engine.unusable import Unusable

LIBRARY: Final = "libreplyline_native.so"
REMEDY: Final = "run: replyline model prepare"
NO_COMPILER: Final = f"no C compiler is found; install gcc, or the Python package ziglang, then {REMEDY}"
_BUILT: Final = "built.json"
_NAME_CHARS: Final = 16
_KEPT_S: Final = 7 * 86_400.0
_SOURCES: Final = Path(__file__).with_name("source")
FLAGS: Final = ("-O3", "-std=c11", "-ffp-contract=fast", "-fPIC", "-pthread")
_AVX2: Final = ("-mavx2", "-mfma", "-mf16c")
_AVX512: Final = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
_PORTABLE: Final = {"portable": ("-DKERNEL_PORTABLE",)}
# Of each architecture the kernels, the fastest first, each with the flags of its instructions.
KERNELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "x86_64": {
        "avx512-bf16": (*_AVX512, "-mavx512bf16"),
        "avx512-vnni": _AVX512,
        "avx-vnni": (*_AVX2, "-mavxvnni"),
        "avx2": _AVX2,
        **_PORTABLE,
    },
    "aarch64": {"neon": ("-mcpu=generic+dotprod",), **_PORTABLE},
}


class Built(Struct, frozen=True, kw_only=True):
    """A library: its kernels, the fastest first, what compiled it, and those `left_out` that the compiler does not
    know, with its words."""

    sha256: str
    compiler: str
    kernels: tuple[str, ...]
    left_out: dict[str, str] = {}

    def describe(self) -> str:
        """`avx2, portable, by cc: …; without avx-vnni (…)`."""
        without = "".join(f"; without {name} ({fault})" for name, fault in self.left_out.items())
        return f"{', '.join(self.kernels)}, by {self.compiler}{without}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The sources of a library and the machine that it is for."""

    sources: Path = _SOURCES
    machine: str = field(default_factory=platform.machine)

    @property
    def kernels(self) -> Mapping[str, tuple[str, ...]]:
        return KERNELS.get(self.machine, _PORTABLE)

    def folder(self, directory: Path) -> Path:
        """Return where in `directory` the library of these very sources, flags and machine is kept."""
        digest = hashlib.sha256(repr((self.machine, libc(), FLAGS, list(self.kernels.items()))).encode())
        for source in sorted(self.sources.glob("*.[ch]")):
            digest.update(source.name.encode() + hashlib.sha256(source.read_bytes()).digest())
        return directory.absolute() / digest.hexdigest()[:_NAME_CHARS]


def find_built(directory: Path, recipe: Recipe) -> Built | Unusable:
    """Return what is known of the library in `directory`, whose bytes are compared; or why it cannot be used."""
    folder = recipe.folder(directory)
    try:
        built = msgspec.json.decode((folder / _BUILT).read_bytes(), type=Built)
        found = hashlib.sha256((folder / LIBRARY).read_bytes()).hexdigest()
    except FileNotFoundError:
        return Unusable(f"it was not built in {directory}; {REMEDY}")
    except (OSError, UnicodeError, msgspec.MsgspecError) as error:
        return Unusable(f"{folder} is damaged ({error}); {REMEDY}")
    return built if found == built.sha256 else Unusable(f"{folder / LIBRARY} is not what was built; {REMEDY}")


def ensure_built(directory: Path, recipe: Recipe, environ: Mapping[str, str]) -> Built | Unusable:
    """Return the library in `directory`, built now where it is missing or damaged; or why there can be none."""
    if sys.platform != "linux":
        return Unusable(f"it is written for Linux, not for {sys.platform}")
    built = find_built(directory, recipe)
    if isinstance(built, Built):
        return built
    found: Built | Unusable = Unusable(NO_COMPILER)
    for compiler in compilers(environ):
        found = build(directory, recipe, compiler)
        if isinstance(found, Built):
            break
    return found


def build(directory: Path, recipe: Recipe, compiler: Compiler) -> Built | Unusable:
    """Build the library into its folder, whole or not at all; a kernel that the compiler does not know is left out."""
    target = recipe.folder(directory)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as name:
            work = Path(name)
            made = _compile(work, recipe, compiler)
            if isinstance(made, Built):
                _put(work / "new", target, work / "old")
                remove_unused(target, now_unix_ms() / 1_000)
            return made
    except OSError as error:
        other = find_built(directory, recipe)  # another process may have been first
        remedy = "correct REPLYLINE_WORKER__NATIVE_DIR"
        return other if isinstance(other, Built) else Unusable(f"{target}: {error.strerror}; {remedy}")


def _put(new: Path, target: Path, old: Path) -> None:
    """Rename `new` to `target`; who has mapped the library that was there keeps it."""
    if target.exists():
        target.rename(old)
    new.rename(target)


def note_use(folder: Path) -> None:
    """Note that a process loads the library of a folder, if it may write there."""
    with suppress(OSError):
        os.utime(folder / _BUILT)


def remove_unused(kept: Path, now_s: float) -> None:
    """Remove the libraries beside `kept` that nobody has loaded or built for a week, and what a build that was killed
    has left. A process that has loaded one goes on with it. What cannot be removed stays; another process may remove
    the same."""
    for folder in kept.parent.iterdir():
        if re.fullmatch(rf"[0-9a-f]{{{_NAME_CHARS}}}|\.building-\w+", folder.name) is None or folder == kept:
            continue
        with suppress(OSError):
            used = folder / _BUILT if (folder / _BUILT).exists() else folder
            if now_s - used.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


def _compile(work: Path, recipe: Recipe, compiler: Compiler) -> Built | Unusable:
    """Compile into `work/new`."""
    library = work / "new" / LIBRARY
    library.parent.mkdir()

    def compile_(source: str, name: str, *flags: str) -> str | None:
        arguments = (*FLAGS, *flags, "-c", source, "-o", str(work / f"{name}.o"))
        return compiler.run(work, *arguments, folder=recipe.sources)

    def compile_kernel(name: str) -> str | None:
        return compile_("step.c", name, f"-DKERNEL={_symbol(name)}", *recipe.kernels[name])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = dict(zip(recipe.kernels, pool.map(compile_kernel, recipe.kernels), strict=True))
    left_out = {name: fault for name, fault in faults.items() if fault is not None}
    kernels = tuple(name for name in recipe.kernels if name not in left_out)
    # `KERNELS` names each kernel once, the fastest first, for engine.c's table.
    fault = None if kernels else next(iter(left_out.values()))
    fault = fault or compile_(
        "engine.c", "engine", "-DKERNELS=" + "".join(f"EACH({_symbol(name)})" for name in kernels)
    )
    objects = [f"{name}.o" for name in ("engine", *kernels)]
    fault = fault or compiler.run(work, "-shared", "-pthread", *objects, "-lm", "-o", str(library), folder=work)
    if fault is not None:
        return Unusable(f"{compiler.name} cannot compile it ({fault}); name another: CC=gcc replyline model prepare")
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    built = Built(sha256=digest, compiler=compiler.version(), kernels=kernels, left_out=left_out)
    (library.parent / _BUILT).write_bytes(msgspec.json.encode(built) + b"\n")
    return built


def _symbol(kernel: str) -> str:
    """Return a kernel's name as C has it."""
    return kernel.replace("-", "_")
