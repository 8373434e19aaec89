"""Values that no honest client sends, written as `JSON` or `MSGPACK`, each with the name of its fault. Pure."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgpack


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes in the place of a value."""

    data: bytes


class Pairs(list[tuple[Any, Any]]):
    """A map in which keys may be repeated and be anything."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written; `odd` is no value in this form, `nested` is a value within a value within a value."""

    write: Callable[[Any], bytes]
    odd: Callable[[Random], Raw]
    nested: Callable[[Random, int], Raw]


def strange(random: Random, form: Form) -> Any:
    """A value for a field that expects another."""
    if random.random() < 0.4:
        return form.odd(random)
    if random.random() < 0.1:
        return form.nested(random, random.randrange(1, 2_000))
    return random.choice(_STRANGE)


_STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**70)),
    *(10**40, 10**400, 0.5, -0.0, 1.5, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", " ", "\n", "\0", "x", "-x", "x\n", "x" * 64, "x" * 65, "x" * 5_000, "../../etc", "a b", "a}b{c", "%s%n"),
    *("\u202ea", "e\u0301" * 40, "\U0001f600", "\ud800", "\udfff\ud800", "\ufeff", "сессия", "own:x", "1", "true"),
    *(b"bytes", [], {}, [[]], [None], ["a"] * 5, ["a", ""], ["x" * 65], [1, "a"], {"a": {}}, {"a": None}, {"": ""}),
    *({"k": "v" * 513}, {"k" * 65: "v"}, {str(number): "v" for number in range(17)}, {"cursor": "x" * 5_000}),
    *({"cursor": None}, {"cursor": "é"}, {"name": "x" * 65}, {"name": ["x"]}),
)


# --- JSON


def write_json(value: Any) -> bytes:
    match value:
        case Raw():
            return value.data
        case Pairs():
            return b"{" + b",".join(write_json(key) + b":" + write_json(of) for key, of in value) + b"}"
        case dict():
            return write_json(Pairs(value.items()))
        case list():
            return b"[" + b",".join(map(write_json, value)) + b"]"
        case bytes():
            return b'"' + value + b'"'
    return json.dumps(value).encode()


_JSON_ODDITIES = (
    *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"1e400", b"-1e400", b"01", b"+1", b".5", b"1.", b"0x10", b"1_0"),
    *(b"1e", b"1e99999999999999999999", b"0." + b"0" * 4_000 + b"1", b"9" * 4_400, b"-" + b"9" * 400, b"-"),
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\ud800x"', rb'"\u00"', rb'"\x41"', rb'"\u0000"', rb'"\uD83D\uDE00"'),
    *(b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xff"', b'"\xf5\x80\x80\x80"', b'"\xe2\x82"', b'"\x00"', b'"a\nb"', b'"'),
    *(b"'x'", b"undefined", b"True", b"tru", b"nul", b"/**/1", b"1//", b"[1,]", b"[,1]", b'{"a":1,}', b'{"a"}', b"{,}"),
    *(b"\xef\xbb\xbf1", b"\xff\xfe1\x00", b"\x00", b"", b"[", b"]", b"{", b"}", b",", b":", b"[}", b"{]", b"1 2"),
)


def _odd_json(random: Random) -> Raw:
    return Raw(random.choice(_JSON_ODDITIES))


def _nested_json(random: Random, depth: int) -> Raw:
    opening, closing = random.choice(((b"[", b"]"), (b'{"x":', b"}"), (b'[{"x":', b"}]"), (b"[[],", b"]")))
    return Raw(opening * depth + random.choice((b"", b"1" + closing * depth, closing * depth)))


# --- MessagePack


def write_msgpack(value: Any) -> bytes:
    match value:
        case Raw():
            return value.data
        case Pairs():
            return _map_of(len(value)) + b"".join(write_msgpack(part) for pair in value for part in pair)
        case dict():
            return write_msgpack(Pairs(value.items()))
        case list():
            return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(write_msgpack, value))
        case int() if not -(2**63) <= value < 2**64:
            return b"\xcb" + struct.pack(">d", float("inf"))
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


def _map_of(size: int) -> bytes:
    return bytes([0x80 | size]) if size < 16 else b"\xde" + struct.pack(">H", size)


# Of each marker with a length, how many bytes it has for it: bytes, extensions, texts, lists and maps.
_MARKERS = (0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF)
_LENGTH_BYTES = dict(zip(_MARKERS, (1, 2, 4, 1, 2, 4, 1, 2, 4, 2, 4, 2, 4), strict=True))
_MSGPACK_ODDITIES = (
    *(b"", b"\xc1", b"\xd6\xff\x00\x00\x00\x00", b"\xd6\xff\xff\xff\xff\xff", b"\xd7\xff" + b"\xff" * 8),
    *(b"\xc7\x0c\xff" + b"\xff" * 12, b"\xd4\x07x", b"\xd5\x05ab", b"\xd8\x00" + b"x" * 16, b"\xd7\x80" + b"x" * 8),
    *(b"\xca\x7f\xc0\x00\x00", b"\xcb\x7f\xf0" + b"\x00" * 6, b"\xcb\x7f\xf8" + b"\x00" * 6, b"\xcf" + b"\xff" * 8),
    *(
        b"\xa3\xed\xa0\x80",
        b"\xa2\xc0\x80",
        b"\xa1\xff",
        b"\xa4\xf5\x80\x80\x80",
        b"\xa2\xe2\x82",
        b"\xa5ab",
        b"\xa1\x00",
    ),
    *(b"\xd3\x80" + b"\x00" * 7, b"\xd0", b"\xcd\x00", b"\x81\xc0\xc0", b"\x81\x90\xc0", b"\x81\xff\x01"),
)


def _odd_msgpack(random: Random) -> Raw:
    if random.random() < 0.5:
        return Raw(random.choice(_MSGPACK_ODDITIES))
    marker, size = random.choice(list(_LENGTH_BYTES.items()))
    most = 256**size - 1
    length = random.choice((0, 1, 40, most // 2 + 1, most - 1, most))
    return Raw(bytes([marker]) + length.to_bytes(size, "big") + random.randbytes(random.randrange(40)))


def _nested_msgpack(random: Random, depth: int) -> Raw:
    opening = random.choice((b"\x91", b"\x81\xa1x", b"\x81", b"\xdd\x00\x00\x00\x01", b"\x92\xc0", b"\xdc\x00\x01"))
    return Raw(opening * depth + random.choice((b"", b"\xc0")))


JSON: Final = Form(write_json, _odd_json, _nested_json)
MSGPACK: Final = Form(write_msgpack, _odd_msgpack, _nested_msgpack)
