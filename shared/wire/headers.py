"""Read a record's headers in the spellings of various Kafka clients. Pure.

Names match in any case and punctuation (`Content-Type`, Spring's `contentType`). A text may be quoted, as Spring sends
it, and a number may be digits or a big-endian integer of 4 or 8 bytes. Empty values, null, `None`, `undefined` and -1
count as absent.
"""

from collections.abc import Mapping

from shared.wire.deadline import parse_unix_ms

Headers = Mapping[str, bytes]
_ABSENT = frozenset((b"", b'""', b"null", b"none", b"undefined", b"-1", b"\xff" * 4, b"\xff" * 8))


def header_of(headers: Headers, name: str) -> bytes | None:
    """Return the header of that name in any spelling; None if it is absent."""
    found = headers.get(name)
    if found is None:
        plain = plain_name(name)
        found = next((value for each, value in headers.items() if plain_name(each) == plain), None)
    return None if found is None or found.strip().lower() in _ABSENT else found


def text_of(headers: Headers, name: str) -> str | None:
    """Return a header's text without the quotes of a JSON string."""
    found = header_of(headers, name)
    if found is None:
        return None
    text = found.decode("utf-8", "replace").strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def number_of(headers: Headers, name: str) -> int | None:
    """Return a header's number; None if it is absent or not a number."""
    return parse_unix_ms(header_of(headers, name) or b"")


def plain_name(name: str) -> str:
    """Return a header's or field's name without case and punctuation."""
    return name.lower().replace("-", "").replace("_", "")
