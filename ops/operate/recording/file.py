"""A recording as a file: gzipped JSON lines, written under a temporary name and renamed when complete. An incomplete
file can be read up to its last complete line. Every fault of a file is reported in one line.

The lines are a `Header`, followed by an `RecordedRequest` for each request in order of arrival.
"""

import fcntl
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from shared.conversation.corrections import must_go
from shared.errors import ReplylineError, SettingsError
from shared.nouns import counted
from shared.wire.fields import Stop
from shared.wire.messages import Bucket

VERSION: Final = 1
BYTES: Final = "bytes"  # the tokenizer whose tokens are bytes
_HASH_BYTES: Final = 8
_OWNER_ONLY: Final = 0o600
_GZIP: Final = 31  # zlib's number for gzip
_MOST_REQUESTS: Final = 5_000_000
_MOST_BYTES: Final = 1 << 32
_TAG: Final = "type"
_KIND: Final = "replyline.recording"
_HEAD: Final = f'{{"{_TAG}":"{_KIND}"'.encode()

_Tokens = Annotated[int, Meta(ge=0, le=1_000_000)]
_Ms = Annotated[int, Meta(ge=1, le=86_400_000)]


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field=_TAG, tag=_KIND):
    """The first line. `tokenizer` is the tokenizer that counts tokens: the name of the model's folder, or "bytes"."""

    version: int
    started_unix_ms: int
    tokenizer: str
    topics: tuple[str, ...]


class RecordedRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field=_TAG, tag="asked"):
    """A request.

    Attributes:
        at_ms: time since the first request's arrival in its topic
        tenant: a hash with a key that is not stored
        session: likewise
        input_tokens: tokens of the text, even if it is not stored
        first_token_ms: soft deadline, from the request's creation
        deadline_ms: hard deadline, from the request's creation
        text: None unless the customer has consented
        stop: empty unless the customer has consented
        person: digest of the conversation, with which its texts can be removed; None without text
    """

    at_ms: Annotated[float, Meta(ge=0)]
    bucket: Bucket
    tenant: str
    session: str
    input_tokens: _Tokens
    max_output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)]
    first_token_ms: _Ms
    deadline_ms: _Ms
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    stop: Stop = ()
    text: str | None = None
    person: str | None = None


def hashed(key: bytes, *parts: str) -> str:
    """Return a hash that is equal for equal parts within one recording, and reveals nothing without the key."""
    return hashlib.blake2b("/".join(parts).encode(), key=key, digest_size=_HASH_BYTES).hexdigest()


class RecordingFailed(ReplylineError):  # noqa: N818 - an event, not a kind of error
    code = "recording_failed"


class RecordingWriter:
    """Writes `path`.partial, whose complete lines can be read at any time; `finish` renames it to `path`. Only its
    owner may read it. Raises `SettingsError` if a file exists already, `RecordingFailed` if it cannot be written."""

    def __init__(self, path: Path, header: Header) -> None:
        if path.exists():
            raise SettingsError(f"{path}: exists already; use another name, or remove it")
        self._path = path
        self.partial = path.with_name(path.name + ".partial")
        try:
            handle = os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        except FileExistsError:
            raise SettingsError(
                f"{self.partial}: exists already, from a running or interrupted recording; move or remove it"
            ) from None
        except OSError as error:
            raise SettingsError(f"{self.partial}: cannot be written: {error.strerror}; use another file") from None
        self._file = os.fdopen(handle, "wb")
        self._zip = zlib.compressobj(wbits=_GZIP)
        self.write(header)
        self.flush()

    def write(self, entry: Header | RecordedRequest) -> None:
        with self._disk():
            self._file.write(self._zip.compress(msgspec.json.encode(entry) + b"\n"))

    def flush(self) -> None:
        with self._disk():
            self._file.write(self._zip.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()

    def finish(self) -> None:
        """Complete the file, sync it to disk and rename it."""
        with self._disk():
            self._file.write(self._zip.flush())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.partial.rename(self._path)

    def forget(self, forgotten: Mapping[str, int]) -> None:
        """Remove the texts of forgotten conversations from the file, and continue."""
        self.flush()
        new, _ = _without(read_recording(self.partial), forgotten, self.partial.with_name(f"{self.partial.name}.new"))
        if new is not None:
            new.flush()
            with self._disk():
                self._file.close()
                new.partial.replace(self.partial)
            self._file, self._zip = new._file, new._zip  # noqa: SLF001 - a writer of the same file

    def discard(self) -> None:
        """Remove the file."""
        self.close()
        self.partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Interrupt the recording. The data written so far stays in `partial`."""
        if not self._file.closed:
            with suppress(RecordingFailed):  # raised by the write that failed
                self.flush()
            with suppress(OSError):
                self._file.close()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RecordingFailed(
                f"{self.partial}: {error.strerror}; make room and record again, the data written so far can be used"
            ) from error


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording. `asked` are the requests as written; `broken_off` describes an incomplete file and is empty
    otherwise."""

    name: str
    header: Header
    asked: tuple[RecordedRequest, ...]
    broken_off: str = ""

    @property
    def num_sessions(self) -> int:
        return len({one.session for one in self.asked})

    def in_order(self) -> list[tuple[int, RecordedRequest]]:
        """Return the requests by arrival, each with its index in the file."""
        return sorted(enumerate(self.asked), key=lambda pair: (pair[1].at_ms, pair[0]))


def forget_in(path: Path, forgotten: Mapping[str, int]) -> int:
    """Remove the texts of forgotten conversations from a completed recording; return the number of requests concerned.
    One process at a time does so in a folder. Raises `SettingsError`, `RecordingFailed`."""
    rest = path.with_name(f"{path.name}.new")
    with _locked(path.parent):
        rest.with_name(f"{rest.name}.partial").unlink(missing_ok=True)  # of a try that broke off, as by a full disk
        new, num_gone = _without(read_recording(path), forgotten, rest)
        if new is not None:
            new.finish()
            rest.replace(path)
    return num_gone


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _without(recording: "Recording", forgotten: Mapping[str, int], path: Path) -> tuple[RecordingWriter | None, int]:
    """Write a recording to `path` without the texts of forgotten conversations.

    Returns:
        The writer and the number of requests whose text was removed; (None, 0) if there are none.
    """
    start = recording.header.started_unix_ms
    gone = [
        each.person is not None and must_go(forgotten, (each.person,), start + each.at_ms) for each in recording.asked
    ]
    if not any(gone):
        return None, 0
    new = RecordingWriter(path, recording.header)
    for each, is_gone in zip(recording.asked, gone, strict=True):
        new.write(msgspec.structs.replace(each, text=None, stop=(), person=None) if is_gone else each)
    return new, sum(gone)


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises `SettingsError` with a one-line message."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; use a file of `replyline record`") from None
    return parse_recording(data, str(path))


def parse_recording(data: bytes, name: str) -> Recording:
    """Parse a recording. An incomplete last line is omitted, and `broken_off` says so.

    Raises `SettingsError` with `name` if the data is not a recording, has another version, or is damaged.
    """
    unzip = zlib.decompressobj(wbits=_GZIP)
    try:
        body = unzip.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise _damaged(name, str(error)) if _begins_as_one(data) else _foreign(name) from None
    *lines, rest = body.split(b"\n")
    if not lines or not lines[0].startswith(_HEAD):
        raise _foreign(name)
    if unzip.unused_data or unzip.unconsumed_tail or (unzip.eof and rest):
        raise _damaged(name, "unexpected data after its end")
    header = _header(lines[0], name)
    asked: list[RecordedRequest] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            asked.append(msgspec.json.decode(line, type=RecordedRequest))
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise _damaged(name, f"line {number}: {error}") from None
        if len(asked) > _MOST_REQUESTS:
            raise _damaged(name, f"more than {_MOST_REQUESTS:,} requests")
    used = counted(len(asked), "request is", "requests are")
    broken_off = "" if unzip.eof else f"{name}: the recording was interrupted; {used} used"
    return Recording(name, header, tuple(asked), broken_off)


def _begins_as_one(data: bytes) -> bool:
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=_GZIP).decompress(data, len(_HEAD)) == _HEAD
    return False


def _header(line: bytes, name: str) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _damaged(name, f"line 1: {error}") from None
    if header.version != VERSION:
        raise SettingsError(
            f"{name}: has version {header.version}, but this replyline reads version {VERSION}; use the "
            "replyline that made it"
        )
    return header


def _foreign(name: str) -> SettingsError:
    return SettingsError(f"{name}: is not a recording; make one: replyline record FILE")


def _damaged(name: str, why: str) -> SettingsError:
    return SettingsError(f"{name}: is damaged ({why}); copy it again, or record again")
