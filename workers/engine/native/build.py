"""Compile the native CPU engine's C sources to a shared library in a folder.

The compiler is `CC`, else the system's cc, else the one in the wheel `ziglang`.

`engine.c` is compiled once, `step.c` once for each kernel of the architecture. No option depends on this machine's CPU:
one compiler gives the same bytes everywhere, and the library picks a kernel when it is loaded.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shared.process.clock import now_unix_ms
from workers.engine.unusable import Unusable

_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A program that accepts a C compiler's arguments. `name` is for display."""

    name: str
    argv: tuple[str, ...]

    def run(self, work: Path, *arguments: str, folder: Path) -> str | None:
        """Compile in `folder`; return the first line of an error, or None. `work` is for temporary files."""
        # zig caches the libc that it compiles, in `work`, which is deleted later
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(work / "zig"), "ZIG_LOCAL_CACHE_DIR": str(work / "zig")}
        try:
            done = subprocess.run(  # noqa: S603 - the user's compiler
                [*self.argv, *arguments], cwd=folder, env=env, capture_output=True, timeout=_TIMEOUT_S, check=False
            )
        except OSError as error:
            return f"{self.argv[0]}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"no end after {_TIMEOUT_S:g} s"
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        return next((line for line in lines if "error" in line), lines[-1]) if done.returncode else None

    def version(self) -> str:
        """Return its name and the first line of its version."""
        done = subprocess.run([*self.argv, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
        return f"{self.name}: {(done.stdout.splitlines() or ['of no version'])[0]}"


def compilers(environ: Mapping[str, str]) -> Iterator[Compiler]:
    """Yield the compilers to try, the best first; only `CC` if that is set."""
    if environ.get("CC"):
        yield Compiler(f"CC={environ['CC']}", tuple(shlex.split(environ["CC"])))
        return
    cc = shutil.which("cc", path=environ.get("PATH"))
    if cc is not None:
        yield Compiler("cc", (cc,))
    zig = zig_for(platform.machine())
    if zig is not None:
        yield zig


def zig_for(machine: str) -> Compiler | None:
    """Return the compiler in the wheel `ziglang` for an architecture, if it is installed."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        return None
    # without a target it would compile for this CPU
    target = f"{machine}-linux-{'musl' if libc() == 'musl' else 'gnu.2.17'}"
    argv = (str(Path(found.origin).with_name("zig")), "cc", "-target", target, "-fno-sanitize=undefined")
    return Compiler("ziglang", argv)


def libc() -> str:
    """Return the libc of this Python, which loads the library."""
    return "musl" if "musl" in str(sysconfig.get_config_var("SOABI")) else "glibc"


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
# Kernels of each architecture, the fastest first, with their instruction flags.
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
    """A compiled library: its kernels, the fastest first, its compiler, and the kernels that the compiler does not
    support, with its messages.
    """

    sha256: str
    compiler: str
    kernels: tuple[str, ...]
    left_out: dict[str, str] = {}

    def describe(self) -> str:
        """Return `avx2, portable, by cc: …; without avx-vnni (…)`."""
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
        """Return the folder in `directory` for the library of these sources, flags and machine."""
        digest = hashlib.sha256(repr((self.machine, libc(), FLAGS, list(self.kernels.items()))).encode())
        for source in sorted(self.sources.glob("*.[ch]")):
            digest.update(source.name.encode() + hashlib.sha256(source.read_bytes()).digest())
        return directory.absolute() / digest.hexdigest()[:_NAME_CHARS]


def find_built(directory: Path, recipe: Recipe) -> Built | Unusable:
    """Return the description of the library in `directory` after comparing its bytes, or why it cannot be used."""
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
    """Return the library in `directory`, after building it if it is missing or damaged, or why that is not possible."""
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
    """Build the library into its folder completely or not at all; kernels that the compiler does not support are
    left out."""
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
        other = find_built(directory, recipe)  # another process may have been faster
        remedy = "correct REPLYLINE_WORKER__NATIVE_DIR"
        return other if isinstance(other, Built) else Unusable(f"{target}: {error.strerror}; {remedy}")


def _put(new: Path, target: Path, old: Path) -> None:
    """Rename `new` to `target`. Processes that have mapped the old library keep it."""
    if target.exists():
        target.rename(old)
    new.rename(target)


def note_use(folder: Path) -> None:
    """Record that a process loads a folder's library, if the folder is writable."""
    with suppress(OSError):
        os.utime(folder / _BUILT)


def remove_unused(kept: Path, now_s: float) -> None:
    """Remove libraries next to `kept` that were not loaded or built for a week, and the rest of killed builds.

    A process that has loaded one keeps it. Files that cannot be removed remain; another process may remove the same
    ones.
    """
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
    # `KERNELS` lists each kernel once, the fastest first, for engine.c's table.
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
    """Return a kernel's name as a C identifier."""
    return kernel.replace("-", "_")
