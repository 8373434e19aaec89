"""Find a C compiler on this machine: `CC`, else the system's cc, else the one in the wheel `ziglang`."""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A program that takes a C compiler's arguments. `name` is for people."""

    name: str
    argv: tuple[str, ...]

    def run(self, work: Path, *arguments: str, folder: Path) -> str | None:
        """Compile in `folder`; return the line that says what is wrong, None where nothing is. `work` may be filled."""
        # zig keeps the libc that it compiles: in `work`, which goes.
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
        """Return its name and the first line that it says of itself."""
        done = subprocess.run([*self.argv, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
        return f"{self.name}: {(done.stdout.splitlines() or ['of no version'])[0]}"


def compilers(environ: Mapping[str, str]) -> Iterator[Compiler]:
    """Yield the compilers to try, the best first; where `CC` is set, that one alone."""
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
    """Return the compiler in the wheel `ziglang` where it is installed: for an architecture, whichever this is."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        return None
    # Without a target it would compile for this very CPU.
    target = f"{machine}-linux-{'musl' if libc() == 'musl' else 'gnu.2.17'}"
    argv = (str(Path(found.origin).with_name("zig")), "cc", "-target", target, "-fno-sanitize=undefined")
    return Compiler("ziglang", argv)


def libc() -> str:
    """Return the libc of this Python, into which a library is loaded."""
    return "musl" if "musl" in str(sysconfig.get_config_var("SOABI")) else "glibc"
