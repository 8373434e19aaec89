"""Recordings as tests make them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ops.operate.recording.file import BYTES, VERSION, Header, RecordedRequest, RecordingWriter

HEADER = Header(version=VERSION, started_unix_ms=1_800_000_000_000, tokenizer=BYTES, topics=("chat.requests.short",))


def asked(at_ms: float = 0.0, **changed: Any) -> RecordedRequest:
    fields = {
        "at_ms": at_ms,
        "bucket": "short",
        "tenant": "a1",
        "session": "b1",
        "input_tokens": 12,
        "max_output_tokens": 64,
        "first_token_ms": 3_000,
        "deadline_ms": 15_000,
    }
    return RecordedRequest(**{**fields, **changed})


def written(path: Path, entries: Iterable[RecordedRequest], header: Header = HEADER) -> bytes:
    """A whole recording at that path; its bytes."""
    writer = RecordingWriter(path, header)
    for entry in entries:
        writer.write(entry)
    writer.finish()
    return path.read_bytes()
