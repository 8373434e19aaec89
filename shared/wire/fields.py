"""The types of the wire's fields, with their limits."""

import re
from typing import Annotated, Final

from msgspec import Meta

from shared.wire.deadline import read_time

MAX_ID_CHARS: Final = 64
MAX_TURNS: Final = 50
MAX_CONCURRENT: Final = 64
MAX_SEED: Final = 2**63 - 1
_MAX_UNSIGNED: Final = 2**64 - 1
# the largest integer that every JSON and MessagePack reader represents exactly
MAX_INTEGER: Final = 2**53 - 1
MAX_PREDICTED_MS: Final = 1e9
_TRACEPARENT_CHARS: Final = 55
_SMALLEST_TOP_P: Final = 1e-6

_NOT_BLANK: Final = r"\S"
# `(?!\n)`: Python's `$` would accept a trailing newline
_IDENTIFIER: Final = r"^[A-Za-z0-9_\-][A-Za-z0-9_.:\-]*(?!\n)$"
_TRACEPARENT: Final = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?!\n)$"
# How an error message describes a pattern.
PATTERN_WORDS: Final = {
    _NOT_BLANK: "that is not blank",
    _IDENTIFIER: "of letters, digits, `_`, `.`, `:` and `-` that begins with none of `.` and `:`",
    _TRACEPARENT: "of W3C Trace Context: version-trace-parent-flags in lower hexadecimal",
}


def _given(said: object) -> object:
    return said


def _greedy_at_0(said: object) -> object:
    return _SMALLEST_TOP_P if said == 0 and not isinstance(said, bool) else said


def _none_at_minus_1(said: object) -> object:
    return None if said == -1 else said


def _none_below_1(said: object) -> object:
    """Return None for 0, which serializers without absent fields write, and for -1; the largest integers of a language,
    written for "no limit", are lowered to ours."""
    if isinstance(said, int) and MAX_INTEGER < said <= _MAX_UNSIGNED:
        return MAX_INTEGER
    return None if said in (0, -1) else said


def _milliseconds(said: object) -> object:
    return _none_below_1(_whole(said))


def _elapsed(said: object) -> object:
    """Return whole milliseconds since then: browsers count fractions, and their clocks may be set back."""
    said = _whole(said)
    return max(0, said) if isinstance(said, int) else said


def _seed(said: object) -> object:
    if isinstance(said, int) and (said < -1 or MAX_SEED < said <= _MAX_UNSIGNED):
        return said & MAX_SEED
    return _none_at_minus_1(said)


def _joined(said: object) -> object:
    """Return the text of a part or a list of parts, as chat APIs send them, without pictures and files; other values
    unchanged."""
    if isinstance(said, dict):
        text = said.get("text", said)
        return text.get("value", text) if isinstance(text, dict) else text
    others = said if isinstance(said, list) else []
    silent = [isinstance(part, dict) and "type" in part and part.get("text") is None for part in others]
    parts = [_joined(part) for part, is_silent in zip(others, silent, strict=True) if not is_silent]
    return "".join(map(str, parts)) if parts and all(isinstance(part, str) for part in parts) else said


def readable_trace(said: object) -> str | None:
    """Normalise a traceparent to version 00 in lower case; return None if it is invalid, as W3C Trace Context
    requires."""
    text = str(said).strip().lower()[:_TRACEPARENT_CHARS]
    return text if re.match(_TRACEPARENT, text) else None


def nearest_language(said: object) -> object:
    """Return the supported language that is nearest to a locale, or to the first of several."""
    said = said[0] if isinstance(said, list) and said else said
    return "zh" if str(said).lower().startswith(("zh", "cmn", "yue")) else "en"


def _time(said: object) -> object:
    """Return Unix milliseconds; 0 for the first moment of another calendar, written for a time not set."""
    said = read_time(_whole(said))
    return max(0, said) if isinstance(said, int) else said


def _shortened(said: object) -> object:
    return said[:MAX_ID_CHARS] if isinstance(said, str) else said


def _whole(said: object) -> object:
    return int(said) if isinstance(said, float) and abs(said) <= MAX_INTEGER else said


_matches_identifier: Final = re.compile(_IDENTIFIER).match

# `extra["reads"]` is the function with which `shared.wire.lenient` converts a value that the type does not accept. A
# number that has one is absent if it is NaN or infinite.
Label = Annotated[str, Meta(max_length=MAX_ID_CHARS, description="cut there", extra={"reads": _shortened})]
Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS, pattern=_IDENTIFIER)]
RequestIds = Annotated[tuple[Identifier, ...], Meta(max_length=MAX_CONCURRENT)]
Tenant = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*(?!\n)$")]
Revision = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS, pattern=r"^[A-Za-z0-9_.\-]+(?!\n)$")]
Text = Annotated[str, Meta(min_length=1, pattern=_NOT_BLANK, extra={"reads": _joined})]
Parts = Annotated[str, Meta(extra={"reads": _joined})]
Milliseconds = Annotated[int, Meta(ge=1, le=MAX_INTEGER, extra={"reads": _milliseconds})]
Elapsed = Annotated[int, Meta(ge=0, le=MAX_INTEGER, extra={"reads": _elapsed})]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0, extra={"reads": _given})]
TopP = Annotated[
    float,
    Meta(gt=0.0, le=1.0, description="0 is read as the smallest value: greedy", extra={"reads": _greedy_at_0}),
]
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED, description="-1 is read as none", extra={"reads": _seed})]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
UnixMs = Annotated[
    int,
    Meta(
        ge=0,
        le=MAX_INTEGER,
        description="an ISO 8601 time with its offset is read too",
        extra={"reads": _time},
    ),
]
ReplyPartition = Annotated[int, Meta(ge=0, le=MAX_INTEGER, extra={"reads": _none_at_minus_1})]
PredictedMs = Annotated[float, Meta(ge=0.0, le=MAX_PREDICTED_MS)]
MaxOutputTokens = Annotated[
    int, Meta(ge=1, le=MAX_INTEGER, description="0 and -1 are read as none", extra={"reads": _none_below_1})
]
Stop = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=4)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
Traceparent = Annotated[str, Meta(pattern=_TRACEPARENT, extra={"reads": readable_trace})]


def is_identifier(text: str) -> bool:
    return len(text) <= MAX_ID_CHARS and _matches_identifier(text) is not None
