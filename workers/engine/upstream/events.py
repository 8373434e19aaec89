"""Bytes of a chat completion's stream to pieces of text, bounded: nothing that an upstream sends is believed. Pure.

Server-sent events as OpenAI's servers send them: lines of `data:`, each one JSON document; `[DONE]` at the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from workers.engine.upstream.failures import UpstreamFailure

_MOST_LINE_BYTES: Final = 64 * 1_024
_MOST_BYTES: Final = 4 * 1_024 * 1_024
_DONE: Final = b"[DONE]"

Finish = Literal["stop", "length"]


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer: its text; with the last of them the `finish`; `usage` as the upstream tells it."""

    text: str = ""
    finish: Finish | None = None
    usage: Any = None


class Events:
    """One stream. Raises `UpstreamFailure` for what is none."""

    def __init__(self) -> None:
        self._line = b""
        self._num_bytes = 0
        self.done = False
        """Whether `[DONE]` came."""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Give the pieces that are whole with these bytes."""
        self._num_bytes += len(data)
        if self._num_bytes > _MOST_BYTES:
            raise UpstreamFailure("too_much", f"its stream goes on after {_MOST_BYTES:,} bytes")
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if (piece := self._read(line.rstrip(b"\r"))) is not None:
                yield piece
        if len(self._line) > _MOST_LINE_BYTES:
            raise UpstreamFailure("line_too_long", f"a line of its stream has more than {_MOST_LINE_BYTES:,} bytes")

    def _read(self, line: bytes) -> Piece | None:
        name, _, value = line.partition(b":")
        if name != b"data" or self.done:  # a comment, an event's name, the end of an event
            return None
        value = value.strip()
        if value == _DONE:
            self.done = True
            return None
        try:
            chunk = _decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UpstreamFailure("broken_stream", "its stream holds what is no chunk of a chat completion") from None
        if chunk.error is not None:
            raise UpstreamFailure("failed", "its stream ends with an error; look into its log")
        first = chunk.choices[0] if chunk.choices else _Choice()
        text = (first.delta.content or "") if first.delta is not None else ""
        if first.finish_reason is None:
            return Piece(text, usage=chunk.usage) if text or chunk.usage is not None else None
        return Piece(text, "length" if first.finish_reason == "length" else "stop", chunk.usage)


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of a request, as far as they can be believed."""

    prompt: int
    cached: int
    output: int


def believed(usage: Any, *, pieces: int, most_prompt: int, most_output: int) -> Counted | None:
    """Return the usage that an upstream tells of, where it can be true: no fewer tokens than pieces came, no more than
    were asked for, no more in the prompt than `most_prompt`. Else None."""
    try:
        told = msgspec.convert(usage, _Usage)
    except msgspec.ValidationError:
        return None
    cached = (told.prompt_tokens_details or _Details()).cached_tokens or 0
    true = (
        0 < told.prompt_tokens <= most_prompt
        and 0 <= cached <= told.prompt_tokens
        and pieces <= told.completion_tokens <= most_output
    )
    return Counted(told.prompt_tokens, cached, told.completion_tokens) if true else None
