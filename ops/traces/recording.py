"""A recording as a file: written beside its place and moved there whole, read with every fault told in one line."""

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgpack
import msgspec

from ops.traces.entries import END_BYTES, END_HEAD, VERSION, Answered, Asked, End, Entry, Header, encode
from shared.errors import ReplylineError, SettingsError

# No entry is longer: Kafka's records are not.
_MOST_ENTRY_BYTES: Final = 2_000_000
_MOST_REQUESTS: Final = 5_000_000
_OWNER_ONLY: Final = 0o600
_HEAD: Final = b"\xa4type\xb3replyline.recording"


class RecordingFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "recording_failed"


class RecordingWriter:
    """Writes `path`.partial, whose whole entries can be read at any time, and makes it `path` in `finish`. Only its
    owner may read it. Raises `SettingsError` where there is something already, `RecordingFailed` where the disk
    refuses."""

    def __init__(self, path: Path, header: Header) -> None:
        if path.exists():
            raise SettingsError(f"{path}: is there already; name another file, or remove it")
        self._path = path
        self.partial = path.with_name(path.name + ".partial")
        try:
            handle = os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        except FileExistsError:
            raise SettingsError(
                f"{self.partial}: is there already, of a recording that runs or was broken off; move or remove it"
            ) from None
        except OSError as error:
            raise SettingsError(f"{self.partial}: cannot be written: {error.strerror}; name another file") from None
        self._file = os.fdopen(handle, "wb")
        self._crc32 = 0
        self.write(header)

    def write(self, entry: Entry) -> None:
        data = encode(entry)
        self._crc32 = zlib.crc32(data, self._crc32)
        with self._disk():
            self._file.write(data)

    def flush(self) -> None:
        with self._disk():
            self._file.flush()

    def finish(self) -> None:
        """The file is whole, on the disk, and has its name."""
        self.write(End(crc32=self._crc32.to_bytes(4, "big")))
        with self._disk():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.partial.rename(self._path)

    def discard(self) -> None:
        """Nothing remains of it."""
        self.close()
        self.partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Broken off: what was written stays in `partial`."""
        with suppress(OSError):  # told by whoever wrote
            self._file.close()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecordingFailed(
                f"{self.partial}: {error.strerror}; make room and record again, what was written can be used"
            ) from error


@dataclass(frozen=True, slots=True)
class Recording:
    """`asked` as they were written; `answered` by the place of their request among these. `broken_off` says what is
    missing of a file that was not finished; empty where it was."""

    name: str
    header: Header
    asked: tuple[Asked, ...]
    answered: Mapping[int, Answered]
    broken_off: str = ""

    @property
    def num_sessions(self) -> int:
        return len({one.session for one in self.asked})


def is_recording(data: bytes) -> bool:
    """Whether it begins as one, whole or not."""
    return data[1 : 1 + len(_HEAD)] == _HEAD


def read_recording(path: Path) -> Recording:
    """Raises `SettingsError`, one line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; name a file of `replyline record`") from None
    return parse_recording(data, str(path))


def parse_recording(data: bytes, name: str) -> Recording:
    """A last entry that was not written whole is left out, and `broken_off` tells of it.

    Raises `SettingsError` with `name` for what is no recording, one of another version, and one that was damaged.
    """
    if not is_recording(data):
        raise SettingsError(f"{name}: is no recording; make one: replyline record FILE")
    finished = data[-END_BYTES:].startswith(END_HEAD)
    body = data[:-END_BYTES] if finished else data
    if finished and zlib.crc32(body) != int.from_bytes(data[-4:], "big"):
        raise _damaged(name, "its checksum is another")
    header: Header | None = None
    asked: list[Asked] = []
    answered: dict[int, Answered] = {}
    whole = 0
    for value, end in _values(body, name):
        match entry := _entry(value, name, whole):
            case Header() if header is None:
                header = entry
            case Asked() if header is not None and len(asked) < _MOST_REQUESTS:
                asked.append(entry)
            case Answered() if entry.number < len(asked):
                answered.setdefault(entry.number, entry)
            case _:
                raise _damaged(name, f"byte {whole}: a {type(entry).__name__.lower()} entry has no place there")
        whole = end
    left = len(body) - whole
    if header is None or (finished and left) or left > _MOST_ENTRY_BYTES:
        raise _damaged(name, f"byte {whole}: what follows is no entry")
    tail = f", the last {left} bytes are no whole entry and are left out" if left else ""
    broken_off = f"{name}: the recording was broken off{tail}; {len(asked)} requests are used"
    return Recording(name, header, tuple(asked), answered, "" if finished else broken_off)


def _values(body: bytes, name: str) -> Iterator[tuple[Any, int]]:
    """Each that is whole, and where it ends."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(body), strict_map_key=True)
    unpacker.feed(body)
    while True:
        at = unpacker.tell()
        try:
            value = unpacker.unpack()
        except msgpack.OutOfData:
            return
        except (ValueError, msgpack.UnpackException) as error:  # UnicodeDecodeError among them
            raise _damaged(name, f"byte {at}: {error or type(error).__name__}") from None
        yield value, unpacker.tell()


def _entry(value: Any, name: str, at: int) -> Entry:
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and version != VERSION:
        raise SettingsError(
            f"{name}: is a recording of version {version}, and version {VERSION} is read here; use the replyline that "
            "made it"
        )
    try:
        entry: Entry = msgspec.convert(value, type=Entry)
    except msgspec.ValidationError as error:
        raise _damaged(name, f"byte {at}: {error}") from None
    return entry


def _damaged(name: str, why: str) -> SettingsError:
    return SettingsError(f"{name}: is damaged ({why}); copy it anew from where it was made, or record again")
