"""Connections that no honest client makes, drawn from a seed: `hostile_connections(Random(1))`. Pure.

They break WebSocket's rules (RFC 6455), the protocol's on top of it, or just HTTP's.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

import msgpack

from tests.support.hostile.handshakes import bad_handshake, no_request
from tests.support.hostile.messages import hostile_messages
from tests.support.rfc6455 import Opcode, frame

JSON: Final = "chat.v1.json"
MSGPACK: Final = "chat.v1.msgpack"
HELLO: Final = {JSON: b'{"type":"session.start"}', MSGPACK: msgpack.packb({"type": "session.start"})}
ASK: Final = {
    JSON: b'{"type":"response.create","event_id":"e1","input":"Hello","max_output_tokens":4}',
    MSGPACK: msgpack.packb({"type": "response.create", "event_id": "e1", "input": "Hello", "max_output_tokens": 4}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """The bytes written to one connection, in pieces; `kind` names the fault in them.

    A handshake for `subprotocol` precedes them, if one is set. `served`: they contain no violation of WebSocket,
    so a ping after them is answered. `resets`: the client leaves by a reset without reading.
    """

    kind: str
    pieces: Sequence[bytes]
    subprotocol: str | None = None
    served: bool = False
    resets: bool = False


def hostile_connections(random: Random) -> Iterator[Hostile]:
    """Yield them without end; each kind once before any is repeated."""
    while True:
        for kind in random.sample(list(KINDS), k=len(KINDS)):
            yield KINDS[kind](random, kind)


def _form(random: Random) -> tuple[str, int]:
    return random.choice(((JSON, Opcode.TEXT), (MSGPACK, Opcode.BINARY)))


def _fragments(random: Random, opcode: int, payload: bytes, size: int) -> bytes:
    """The message in fragments of `size` bytes, pings between some of them."""
    parts = [payload[start : start + size] for start in range(0, len(payload), size)]
    frames = []
    for number, part in enumerate(parts):
        frames.append(frame(Opcode.CONTINUATION if number else opcode, part, fin=number == len(parts) - 1))
        if random.random() < 0.1:
            frames.append(frame(Opcode.PING, random.randbytes(random.randrange(126))))
    return b"".join(frames)


# --- nothing that breaks WebSocket, only the protocol on it


def _messages(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    hostile = islice(hostile_messages(random, text=name == JSON), random.randrange(1, 8))
    payloads = [message.data for message in hostile if name == MSGPACK or _is_utf8(message.data)]
    greeting = [HELLO[name]] if random.random() < 0.8 else []
    return Hostile(
        kind=kind, pieces=[frame(opcode, payload) for payload in greeting + payloads], subprotocol=name, served=True
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _one_byte_fragments(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    stream = _fragments(random, opcode, HELLO[name], 1) + _fragments(random, opcode, ASK[name], 1)
    return Hostile(kind=kind, pieces=[stream], subprotocol=name, served=True)


def _one_byte_writes(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    stream = frame(opcode, HELLO[name]) + frame(opcode, ASK[name])
    return Hostile(kind=kind, pieces=[bytes([byte]) for byte in stream], subprotocol=name, served=True)


def _empty_fragments(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    empty = frame(Opcode.CONTINUATION, b"", fin=False) * random.choice((1, 10, 500))
    stream = frame(opcode, b"", fin=False) + empty + frame(Opcode.CONTINUATION, HELLO[name])
    return Hostile(kind=kind, pieces=[stream], subprotocol=name, served=True)


def _wrong_frame_type(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    other = Opcode.BINARY if opcode == Opcode.TEXT else Opcode.TEXT
    pieces = [frame(opcode, HELLO[name]), frame(other, HELLO[JSON])]
    return Hostile(kind=kind, pieces=pieces, subprotocol=name, served=True)


def _long_lengths(random: Random, kind: str) -> Hostile:
    """RFC 6455 wants the shortest form of a length; most servers take any."""
    name, opcode = _form(random)
    pieces = [frame(opcode, HELLO[name], length_bytes=random.choice((2, 8)))]
    return Hostile(kind=kind, pieces=pieces, subprotocol=name)


def _pings(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    pings = [frame(random.choice((Opcode.PING, Opcode.PONG)), random.randbytes(125)) for _ in range(300)]
    return Hostile(kind=kind, pieces=[frame(opcode, HELLO[name]), *pings], subprotocol=name, served=True)


def _asks_and_leaves(random: Random, kind: str) -> Hostile:
    name, opcode = _form(random)
    pieces = [frame(opcode, HELLO[name]) + frame(opcode, ASK[name])]
    return Hostile(kind=kind, pieces=pieces, subprotocol=name, resets=random.random() < 0.5)


# --- frames that break it


def _broken(random: Random, kind: str) -> Hostile:
    """At the start, behind the hello, or behind a question."""
    name, opcode = _form(random)
    before = [frame(opcode, payload) for payload in (HELLO[name], ASK[name])][: random.randrange(3)]
    pieces = [*before, BROKEN[kind](random, opcode)]
    return Hostile(kind=kind, pieces=pieces, subprotocol=name, resets=random.random() < 0.2)


def _claims_more(random: Random, opcode: int) -> bytes:
    claimed = random.choice((200, 65_536, 65_537, 2**24, 2**31, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1))
    width = 2 if claimed < 65_536 else 8
    return frame(opcode, random.randbytes(random.randrange(100)), claimed=claimed, length_bytes=width)


def _control_claims_more(random: Random, opcode: int) -> bytes:
    return frame(random.choice((8, 9, 10)), b"x" * 200, claimed=random.choice((126, 2**32)), length_bytes=8)


_CLOSE_CODES = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535)
_CLOSES = (b"\x03", b"\x03\xe8\xff\xfe", b"\x03\xe8" + b"x" * 124, *(struct.pack(">H", code) for code in _CLOSE_CODES))


def _bad_close(random: Random, opcode: int) -> bytes:
    return frame(Opcode.CLOSE, random.choice(_CLOSES))


def _out_of_turn(random: Random, opcode: int) -> bytes:
    """A continuation of nothing; a message, or a close, within another."""
    begun = frame(opcode, b"{", fin=False)
    return random.choice(
        (
            frame(Opcode.CONTINUATION, b"x", fin=random.random() < 0.5),
            begun + frame(opcode, b"{}"),
            begun + frame(Opcode.CLOSE, struct.pack(">H", 1000)),
        )
    )


def _bad_text(random: Random, opcode: int) -> bytes:
    text = random.choice((b"\xff", b'{"type":"\xed\xa0\x80"}', b"\xc0\x80", b"\xf5\x80\x80\x80", b"{\xe2\x82"))
    if random.random() < 0.5:
        return frame(Opcode.TEXT, text)
    return _fragments(random, Opcode.TEXT, b'{"x":"\xf0\x9f\x98' + text, 1)


def _too_big(random: Random, opcode: int) -> bytes:
    message = b" " * random.choice((65_537, 70_000, 200_000))
    return frame(opcode, message) if random.random() < 0.5 else _fragments(random, opcode, message, 8_192)


def _cut(random: Random, opcode: int) -> bytes:
    whole = frame(opcode, b" " * random.choice((0, 5, 200, 60_000)), length_bytes=random.choice((None, 8)))
    return whole[: random.randrange(1, len(whole))]


def _flipped(random: Random, opcode: int) -> bytes:
    stream = bytearray(frame(opcode, HELLO[JSON if opcode == Opcode.TEXT else MSGPACK]) * 3)
    for _ in range(random.randrange(1, 20)):
        stream[random.randrange(len(stream))] ^= 1 << random.randrange(8)
    return bytes(stream)


BROKEN: Final[dict[str, Callable[[Random, int], bytes]]] = {
    "claims more than follows": _claims_more,
    "a control frame that claims more": _control_claims_more,
    "a control frame too long": lambda random, _: frame(random.choice((8, 9, 10)), b"x" * 126),
    "a control frame in fragments": lambda random, _: frame(random.choice((8, 9, 10)), b"xx", fin=False),
    "not masked": lambda random, opcode: frame(random.choice((opcode, 8, 9)), b"{}", masked=False),
    "reserved bits": lambda random, opcode: frame(opcode, b"{}", reserved=random.randrange(1, 8)),
    "a reserved opcode": lambda random, _: frame(random.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), b"{}"),
    "a close that is none": _bad_close,
    "out of turn": _out_of_turn,
    "text that is not UTF-8": _bad_text,
    "too big": _too_big,
    "half a frame": _cut,
    "flipped bits": _flipped,
    "noise": lambda random, _: random.randbytes(random.randrange(1, 300)),
    "frames after the close": lambda _, opcode: frame(Opcode.CLOSE, b"\x03\xe8") + frame(opcode, b"{}") * 20,
}


# --- all of them


def _opening(opening: Callable[[Random], bytes]) -> Callable[[Random, str], Hostile]:
    return lambda random, kind: Hostile(kind=kind, pieces=[opening(random)], resets=random.random() < 0.2)


KINDS: Final[dict[str, Callable[[Random, str], Hostile]]] = {
    "hostile messages": _messages,
    "one-byte fragments": _one_byte_fragments,
    "one-byte writes": _one_byte_writes,
    "empty fragments": _empty_fragments,
    "the wrong frame type": _wrong_frame_type,
    "lengths in long form": _long_lengths,
    "pings": _pings,
    "asks and leaves": _asks_and_leaves,
    **dict.fromkeys(BROKEN, _broken),
    "a bad handshake": _opening(bad_handshake),
    "no request": _opening(no_request),
}
