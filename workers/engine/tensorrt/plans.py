"""TensorRT plans on disk: one file each, identified by everything that its numbers and kernels depend on.

    <model>-<digest of the key>.plan:  magic line, header as one line of JSON, the plan's bytes

A plan is returned only if its header repeats the requested key and its bytes have the header's size and sha256, since
TensorRT does not check its input. A file is written under another name and then renamed.
"""

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

PREFILL: Final = 0  # indices of the two optimisation profiles
DECODE: Final = 1

_MAGIC: Final = b"replyline plan 1\n"
_MAX_HEADER_BYTES: Final = 65_536


class PlanShapes(Struct, frozen=True, kw_only=True):
    """The maximum sizes of a plan: slots of `capacity` tokens each, the last of which is for padding.

    `prefill_rows` sequences are prefilled together, with at most `prefill_tokens` each.
    """

    num_slots: int
    capacity: int
    prefill_rows: int
    prefill_tokens: int


class PlanKey(Struct, frozen=True, kw_only=True):
    """Everything that a plan depends on. `sm` is the GPU's compute capability (`sm_90`), or `any` for a portable plan.

    `graph_sha256` covers the graph and its weights.
    """

    model: str
    graph_sha256: str
    precision: str
    library: str
    version: str
    sm: str
    shapes: PlanShapes

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class _PlanHeader(Struct, frozen=True, kw_only=True):
    key: PlanKey
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that exists but must not be loaded, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class PlanCache:
    directory: Path

    def path(self, key: PlanKey) -> Path:
        model = re.sub(r"[^A-Za-z0-9.-]+", "-", key.model)
        return self.directory / f"{model}-{key.digest[:16]}.plan"

    def load(self, key: PlanKey) -> bytes | Rejected | None:
        """Return the plan of `key`; None if no file has it, `Rejected` if the file is damaged or has another key."""
        path = self.path(key)
        try:
            with path.open("rb") as file:
                return _read(file, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Rejected(path, f"it cannot be read ({error.strerror})")
        except _DamagedError as error:
            return Rejected(path, str(error))

    def store(self, key: PlanKey, plan: bytes) -> Path:
        """Write the plan; a file with the same key is replaced atomically.

        Raises:
            OSError: it cannot be written.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.path(key)
        header = _PlanHeader(key=key, size=len(plan), sha256=hashlib.sha256(plan).hexdigest())
        with tempfile.NamedTemporaryFile(dir=self.directory, prefix=f".{path.name}-", delete=False) as file:
            unfinished = Path(file.name)
            try:
                file.write(_MAGIC + msgspec.json.encode(header) + b"\n")
                file.write(plan)
                file.flush()
                os.fsync(file.fileno())
                unfinished.chmod(0o644)
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        return path


class _DamagedError(Exception):
    pass


def read_plan(path: Path) -> bytes:
    """Return the plan in a file that `PlanCache.load` has checked."""
    with path.open("rb") as file:
        file.read(len(_MAGIC))
        file.readline(_MAX_HEADER_BYTES)
        return file.read()


def _read(file: IO[bytes], key: PlanKey) -> bytes:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _DamagedError("it is not a plan of this version")
    try:
        header = msgspec.json.decode(file.readline(_MAX_HEADER_BYTES), type=_PlanHeader)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _DamagedError("its header is damaged") from None
    if header.key != key:
        raise _DamagedError("it was built for something else")
    plan = file.read(header.size + 1) if header.size >= 0 else b""
    if len(plan) != header.size or hashlib.sha256(plan).hexdigest() != header.sha256:
        raise _DamagedError("it is damaged")
    return plan
