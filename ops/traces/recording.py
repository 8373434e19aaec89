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
    body, end = data[:-END_BYTES], data[-END_BYTES:]
    finished = end.startswith(END_HEAD)
    if finished and zlib.crc32(body) != int.from_bytes(end[len(END_HEAD) :], "big"):
        raise _damaged(name, "its checksum is another")
    if not finished:
        body = data
    return _Reading(name).read(body, finished=finished)


class _Reading:
    """One pass through a recording's bytes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._header: Header | None = None
        self._asked: list[Asked] = []
        self._answered: dict[int, Answered] = {}

    def read(self, body: bytes, *, finished: bool) -> Recording:
        unpacker = msgpack.Unpacker(max_buffer_size=len(body), strict_map_key=True)
        unpacker.feed(body)
        whole = 0
        while True:
            try:
                value = unpacker.unpack()
            except msgpack.OutOfData:
                break
            except (ValueError, msgpack.UnpackException) as error:  # UnicodeDecodeError among them
                raise _damaged(self._name, f"byte {whole}: {error or type(error).__name__}") from None
            self._take(value, whole)
            whole = unpacker.tell()
        left = len(body) - whole
        if self._header is None or (finished and left) or left > _MOST_ENTRY_BYTES:
            raise _damaged(self._name, f"byte {whole}: what follows is no entry")
        broken_off = "" if finished else self._broken_off(left)
        return Recording(self._name, self._header, tuple(self._asked), self._answered, broken_off)

    def _take(self, value: Any, at: int) -> None:
        if self._header is None:
            self._check_version(value)
        try:
            entry = msgspec.convert(value, type=Entry)
        except msgspec.ValidationError as error:
            raise _damaged(self._name, f"byte {at}: {error}") from None
        match entry:
            case Asked() if self._header is not None:
                self._asked.append(entry)
            case Answered() if entry.number < len(self._asked):
                self._answered.setdefault(entry.number, entry)
            case Header() if self._header is None:
                self._header = entry
            case _:
                raise _damaged(self._name, f"byte {at}: a {type(entry).__name__.lower()} entry has no place there")
        if len(self._asked) > _MOST_REQUESTS:
            raise SettingsError(f"{self._name}: holds more than {_MOST_REQUESTS} requests; record for a shorter time")

    def _check_version(self, value: Any) -> None:
        version = value.get("version") if isinstance(value, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise SettingsError(
                f"{self._name}: is a recording of version {version}, and version {VERSION} is read here; use the "
                "replyline that made it"
            )

    def _broken_off(self, left: int) -> str:
        tail = f", the last {left} bytes are no whole entry and are left out" if left else ""
        return f"{self._name}: the recording was broken off{tail}; {len(self._asked)} requests are used"


def _damaged(name: str, why: str) -> SettingsError:
    return SettingsError(f"{name}: is damaged ({why}); copy it anew from where it was made, or record again")
