"""Parse a chat completion's stream into pieces of text. All sizes are bounded, and the input is not trusted. Pure.

Server-sent events as OpenAI-compatible servers send them: lines of `data:`, then `[DONE]`. A JSON document may take
several lines, or have no `data:`, if the answer is not a stream. An answer is complete only with a finish reason that
is known to mean that; `[DONE]` alone is not enough.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from shared.wire.lenient import UNREADABLE, lenient_convert, read_json
from workers.engine.upstream.failures import UpstreamFailure

_MOST_LINE_BYTES: Final = 64 * 1_024
_MOST_BYTES: Final = 4 * 1_024 * 1_024
_DONE: Final = b"[DONE]"
_NOTHING: Final = frozenset((b"", b"null", b'""', b"{}"))
_FIRST: Final = (None, 0, "0", "")
_BOM: Final = b"\xef\xbb\xbf"
_NO_DATA: Final = frozenset((b"", b"event", b"id", b"retry"))
# Half of a character that a server cuts into two chunks: at a text's end, and at the beginning of the next.
_FIRST_HALF: Final = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}(?=")')
_SECOND_HALF: Final = re.compile(rb'(?<=")(?=\\u[dD][c-fC-F][0-9a-fA-F]{2})')
_TRUNCATED: Final = "Input data was truncated"
_TEXT_PARTS: Final = frozenset(("text", "output_text"))

Finish = Literal["stop", "length"]

# Finish reasons of OpenAI, vLLM, SGLang, TGI, llama-server, Ollama, TensorRT-LLM, Mistral, Anthropic, Google, Cohere,
# Zhipu, DeepSeek and watsonx, in lower case with "_" between words and without `_PREFIX`, an enumeration's name.
_PREFIX: Final = re.compile(r"finish_?reason(_?(enum|type))?[_.:]+")
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|[\s-]+")
_RUNNING: Final = re.compile(r"|null|none|not_finished|unfinished|in_progress|unspecified|running|pending|generating")
_STOP: Final = re.compile(
    r"(matched_)?stop(ped|ping)?(_(sequence|token|string|str|word|criteria)s?)?|(eos|eot|stop)(_token)?(_ids?)?|eos_found"
    r"|end(ed|_turn|_of_(text|turn|sequence|stream|message))?|completed?|finish(ed)?|done|true|success|<[|/\w]+>|\[eos\]"
)
_LENGTH: Final = re.compile(
    r"(max_|model_|context_)?length(_limit|_cap(ped)?)?(_reached|_exceeded)?|(max_)?tokens?_limit(_reached|_exceeded)?"
    r"|max_((new|output|completion)_)?(tokens?|length)(_reached|_exceeded)?|limit|.*context_window_exceeded|truncated"
    r"|repetition"
)
_WITHHELD: Final = re.compile(
    r"content_filter(ed)?|safety|recitation|blocklist|prohibited_content|spii|refusal|sensitive|error_toxic|guardrail.*"
)
_CALLS: Final = re.compile(r"tool_(calls?|use)|function_call")
_BROKEN: Final = re.compile(
    r"abort(ed)?|.*error.*|timeout|time_limit|(user_)?cancel(l?ed)?|insufficient_.*|overloaded|(un)?load|pause_turn"
)
_LEGACY: Final = {"eos": "stop", "word": "stop", "limit": "length"}  # llama-server's `stop_type`, `stopped_eos`


class _Delta(Struct):
    content: str | list[Any] | dict[str, Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: Any = None
    stop_reason: Any = None
    index: Any = None
    error: Any = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    type: Any = None
    detail: Any = None
    message: Any = None
    msg: Any = None
    finish_reason: Any = None
    done_reason: Any = None
    stop_reason: Any = None
    stop_type: Any = None
    stopped_eos: Any = None
    stopped_word: Any = None
    stopped_limit: Any = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Details | None = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer.

    Attributes:
        finish: set for the last piece.
        usage: the usage as reported.
        thinks: a thought arrived in a separate field.
    """

    text: str = ""
    finish: Finish | None = None
    usage: Any = None
    thinks: bool = False


class Events:
    """The parser of one stream. Raises `UpstreamFailure` for other input."""

    def __init__(self) -> None:
        self._line = b""
        self._begun = b""  # a JSON document that continues in the next line
        self._half = b""  # of a character that continues in the next chunk
        self._num_bytes = 0
        self._has_text = self._finished = False
        self.done = False
        """Whether `[DONE]` has arrived."""
        self.thoughts = 0
        """Number of chunks with a thought in a separate field."""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Yield the pieces that these bytes complete."""
        self._num_bytes += len(data)
        if self._num_bytes > _MOST_BYTES:
            raise UpstreamFailure("too_much", f"its stream continues after {_MOST_BYTES:,} bytes")
        *lines, self._line = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if (piece := self._read(line.removeprefix(_BOM))) is not None:
                yield piece
        if len(self._line) + len(self._begun) > _MOST_LINE_BYTES:
            raise UpstreamFailure("line_too_long", f"a line of its stream has more than {_MOST_LINE_BYTES:,} bytes")

    def close(self) -> Iterator[Piece]:
        """End the stream, and yield the pieces of its last line."""
        yield from self.feed(b"\n")
        if self._begun:
            raise _no_chunk()

    def _read(self, line: bytes) -> Piece | None:
        value = self._value_in(line)
        if value is None:
            return None  # a comment, an event's name, or the end of an event
        if value.strip(b'"').upper() == _DONE:
            self.done = True
        if self.done or (value in _NOTHING and not self._begun):
            return None
        value, self._begun = self._joined(self._begun + value), b""
        try:
            chunk = _decode(value)
        except UNREADABLE as error:
            goes_on = str(error).startswith(_TRUNCATED)
            mended = _mended(value) if not goes_on or b"\\u" in value else None
            if mended is None and not goes_on:
                if self._finished:
                    return None  # added by a proxy after a complete answer
                raise _no_chunk() from None
            if mended is None:
                self._begun = value
                return None
            chunk = mended
        return self._piece(chunk)

    def _value_in(self, line: bytes) -> bytes | None:
        """Return the value of a `data:` line, or a line of JSON that has no `data:`; None for any other line."""
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), _unwrapped(value)
        if name == b"error" or (name == b"event" and value.lower() == b"error"):
            raise _an_error()
        if name != b"data":
            if line.startswith(b"<") and not self._finished:
                raise _no_chunk()  # a page
            if not line.startswith((b"{", b"[{")) and (not self._begun or name in _NO_DATA):
                return None
            value = line.strip()
        return value[1:].removesuffix(b"]") if value.startswith(b"[{") else value

    def _joined(self, value: bytes) -> bytes:
        """Return a chunk with the half of a character that the last one ended with, without the one it ends with."""
        if b"\\u" not in value:
            return value
        if self._half:
            value, self._half = _SECOND_HALF.sub(self._half.replace(b"\\", rb"\\"), value, count=1), b""
        if (half := _FIRST_HALF.search(value)) is not None:
            self._half = half[0]
            value = value[: half.start()] + value[half.end() :]
        return value

    def _piece(self, chunk: _Chunk) -> Piece | None:
        first = next((choice for choice in chunk.choices or () if choice.index in _FIRST), _Choice())
        if (_is_error(chunk) or _fails(first.error)) and not self._finished:
            raise _an_error()
        said = first.delta or (None if self._has_text else first.message)
        text = _text_in(said.content) if said is not None else first.text or ""
        self._has_text = self._has_text or bool(text)
        if said is not None and not text and _thinks(said):
            self.thoughts += 1
        finish = _finish(_reason(chunk, first))
        self._finished = self._finished or finish is not None
        return Piece(text, finish, chunk.usage) if text or finish or chunk.usage is not None else None


def _unwrapped(value: bytes) -> bytes:
    """Return the value of a line that a proxy has wrapped once more: `data: data: {}`."""
    value = value.strip()
    while value[:5].lower() == b"data:":
        value = value[5:].strip()
    return value


def _fails(error: Any) -> bool:
    """Return whether the `error` of a chunk reports one. Some servers send an empty one with each chunk."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _is_error(chunk: _Chunk) -> bool:
    """Return whether a chunk reports an error, as OpenAI's servers, FastAPI and proxies write it."""
    is_named = chunk.object == "error" or chunk.type == "error" or _fails(chunk.error)
    return is_named or (chunk.choices is None and any((chunk.detail, chunk.message, chunk.msg)))


def _mended(value: bytes) -> _Chunk | None:
    """Parse a chunk of another serializer; U+FFFD replaces invalid UTF-8 (a truncated character)."""
    try:
        return cast(_Chunk, lenient_convert(read_json(value), _Chunk))
    except UNREADABLE:
        return None


def _thinks(said: _Delta) -> bool:
    return bool(said.reasoning_content or said.reasoning or said.thinking) or isinstance(said.content, list)


def _text_in(content: str | list[Any] | dict[str, Any] | None) -> str:
    """Return a delta's text; of a list of parts only those of type `text` are shown."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    parts = [{"text": part} if isinstance(part, str) else part for part in parts]
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS]
    return "".join([text for text in texts if isinstance(text, str)])


def _reason(chunk: _Chunk, choice: _Choice) -> Any:
    """Return the finish reason as the server wrote it."""
    given = choice.finish_reason or chunk.finish_reason or chunk.done_reason or choice.stop_reason or chunk.stop_reason
    if isinstance(given, dict):  # SGLang's form
        given = given.get("type")
    if given:
        return given
    old = {"eos": chunk.stopped_eos, "word": chunk.stopped_word, "limit": chunk.stopped_limit}
    return next((_LEGACY[name] for name, value in old.items() if value is True or chunk.stop_type == name), None)


def _finish(reason: Any) -> Finish | None:
    """Return how an answer ended; None if it has not.

    Raises:
        UpstreamFailure: it was aborted.
    """
    name = "" if reason is None else _WORDS.sub("_", str(reason).strip()).lower()
    name = _PREFIX.sub("", name, count=1)
    if _RUNNING.fullmatch(name):
        return None
    if _STOP.fullmatch(name):
        return "stop"
    if _LENGTH.fullmatch(name):
        return "length"
    if _WITHHELD.fullmatch(name):
        raise UpstreamFailure("withheld", "its content filter has ended the answer")
    if _CALLS.fullmatch(name):
        raise UpstreamFailure("calls_tool", "it calls a tool where an answer was asked for; start it without tools")
    if _BROKEN.fullmatch(name):
        raise UpstreamFailure("failed", "it has given up the answer; look into its log")
    raise UpstreamFailure("unknown_end", "its answer ends with an unknown finish_reason; look into its log")


def _an_error() -> UpstreamFailure:
    return UpstreamFailure("failed", "its stream ends with an error; look into its log")


def _no_chunk() -> UpstreamFailure:
    return UpstreamFailure("broken_stream", "its stream holds what is no chunk of a chat completion")


@dataclass(frozen=True, slots=True)
class Counted:
    """A request's number of tokens, as far as it is plausible."""

    prompt: int
    cached: int
    output: int


def believed(usage: Any, *, pieces: int, most_prompt: int, most_output: int) -> Counted | None:
    """Return the reported usage if it is plausible, else None.

    Args:
        usage: the usage as reported.
        pieces: number of pieces; there must be at least as many output tokens.
        most_prompt: maximum plausible number of prompt tokens.
        most_output: the requested maximum of output tokens.
    """
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
