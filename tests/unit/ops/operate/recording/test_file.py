"""A recording file is complete or absent, decodes to what was written, and its faults are reported in one line."""

import gzip
import json
import stat
import tempfile
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.operate.recording.file import (
    Header,
    RecordedRequest,
    RecordingFailed,
    RecordingWriter,
    parse_recording,
    read_recording,
)
from shared.errors import SettingsError
from tests.support.hostile.message_strategies import any_of
from tests.support.samples.recordings import HEADER, asked, written
from tests.unit.examples import examples

THREE = [asked(0.0), asked(10.5, text="Wo ist mein Paket? 包裹", stop=("\n",)), asked(20.0)]


HEAD = msgspec.json.encode(HEADER) + b"\n"


def fault(data: bytes) -> str:
    """What is said of a file that is not as it was written."""
    try:
        return parse_recording(data, "a.replay").broken_off
    except SettingsError as error:
        return str(error)


@pytest.fixture(scope="module")
def whole() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return written(Path(folder, "a.replay"), THREE)


@settings(max_examples=examples(50))
@given(st.lists(any_of(RecordedRequest), max_size=5))
def test_what_was_written_is_read(entries: list[RecordedRequest]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.replay")
        written(path, entries)
        recording = read_recording(path)
    assert recording.asked == tuple(entries)
    assert (recording.header, recording.broken_off) == (HEADER, "")


def test_it_is_json_lines_that_any_reader_reads(whole: bytes) -> None:
    types = [json.loads(line)["type"] for line in gzip.decompress(whole).splitlines()]
    assert types == ["replyline.recording", "asked", "asked", "asked"]


def test_only_its_owner_may_read_it_and_until_it_is_whole_it_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "a.replay"
    writer = RecordingWriter(path, HEADER)
    writer.write(asked())
    assert not path.exists()
    writer.finish()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["a.replay"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.replay"
    running = RecordingWriter(path, HEADER)
    with pytest.raises(SettingsError, match=r"a\.replay\.partial: exists already.*move or remove it"):
        RecordingWriter(path, HEADER)
    running.finish()
    with pytest.raises(SettingsError, match=r"a\.replay: exists already; use another"):
        RecordingWriter(path, HEADER)


def test_what_was_broken_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """This includes the temporary file that a killed process leaves next to it."""
    path = tmp_path / "a.replay"
    writer = RecordingWriter(path, HEADER)
    writer.write(asked())
    writer.close()
    recording = read_recording(writer.partial)
    assert len(recording.asked) == 1
    assert recording.broken_off == f"{writer.partial}: the recording was interrupted; 1 request is used"


@given(st.data())
def test_cut_anywhere_it_gives_what_came_before_the_cut_and_says_so(whole: bytes, data: st.DataObject) -> None:
    head = zlib.compressobj(wbits=31)
    written_first = len(head.compress(HEAD) + head.flush(zlib.Z_SYNC_FLUSH))
    recording = parse_recording(whole[: data.draw(st.integers(written_first, len(whole) - 1))], "a.replay")
    assert recording.asked == tuple(THREE)[: len(recording.asked)]
    assert recording.broken_off.startswith("a.replay: the recording was interrupted")


@settings(max_examples=examples(300))
@given(st.data())
def test_one_changed_byte_is_harmless_or_noticed(whole: bytes, data: st.DataObject) -> None:
    """A changed byte is refused in one line, or the recording looks interrupted, or its content is unchanged."""
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    said = fault(bytes(changed))
    assert "\n" not in said
    if said:
        assert said.startswith(("a.replay: is ", "a.replay: has ")) or "interrupted" in said
    else:
        assert parse_recording(bytes(changed), "a.replay") == parse_recording(whole, "a.replay")


@given(st.binary(max_size=200))
def test_what_is_no_recording_is_refused(data: bytes) -> None:
    with pytest.raises(SettingsError, match="x: is not a recording; make one: replyline record FILE"):
        parse_recording(data, "x")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (b"\xc1\n", "line 2: "),
        (b"7\n", "line 2: "),
        (b"half", "unexpected data after its end"),
        (HEAD, "line 2: Invalid value 'replyline.recording'"),
        (msgspec.json.encode(asked()).replace(b"short", b"sharp") + b"\n", "Invalid enum value 'sharp'"),
    ],
    ids=["no JSON", "no map", "no whole line", "second header", "unknown bucket"],
)
def test_what_has_no_place_in_it_is_damage(rest: bytes, said: str) -> None:
    with pytest.raises(SettingsError, match=rf"x: is damaged \(.*{said}.*record again"):
        parse_recording(gzip.compress(HEAD + rest), "x")


def test_another_version_is_named() -> None:
    newer = Header(version=2, started_unix_ms=1, tokenizer="bytes", topics=())
    with pytest.raises(SettingsError, match="x: has version 2, but this replyline reads version 1"):
        parse_recording(gzip.compress(msgspec.json.encode(newer) + b"\n"), "x")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none: cannot be read: No such file"):
        read_recording(tmp_path / "none")
    with pytest.raises(SettingsError, match=r"a\.replay\.partial: cannot be written: No such file"):
        RecordingWriter(tmp_path / "nowhere" / "a.replay", HEADER)


def test_a_full_disk_is_told_with_the_files_name(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a.replay", HEADER)
    writer._file.close()
    writer._file = Path("/dev/full").open("wb")  # noqa: SIM115 - the writer closes it
    writer.write(asked())
    with pytest.raises(RecordingFailed, match=r"a\.replay\.partial: No space left on device; make room"):
        writer.flush()
    writer.close()
    assert writer.partial.exists()
