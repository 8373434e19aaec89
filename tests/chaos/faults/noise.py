"""What no honest producer and no honest client sends, drawn by chance: pure.

On every topic bytes that are nothing, records that are cut, fields of another type, and requests that are well written
and must not be served; to the gateways, connections that break HTTP, WebSocket (RFC 6455) or the protocol on it.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgpack

from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS, TopicNames

_TEXT: Final = "Where is my parcel?"
_MOST_BYTES: Final = 20_000
_DEPTH: Final = 2_000
_UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: chat.v1.msgpack\r\n\r\n"
)
_BINARY: Final = 0x82
_MASKED: Final = 0x80
_RESERVED: Final = 0x8B  # RFC 6455, 5.2: an opcode that means nothing
_SHORT: Final = 125
_TWO, _EIGHT = 126, 127  # a length of so many bytes follows


@dataclass(frozen=True, slots=True)
class Record:
    """For a topic of Kafka."""

    topic: str
    value: bytes
    headers: Mapping[str, bytes] = field(default_factory=dict)


def draw_record(chance: Random, names: TopicNames) -> Record:
    """Of any kind, for any topic that a gateway or a worker reads."""
    return chance.choice((_for_requests, _for_requests, _for_others))(chance, names)


def _for_requests(chance: Random, names: TopicNames) -> Record:
    bucket: Bucket = chance.choice(BUCKETS)
    topic = chance.choice((names.inbox, names.requests(bucket)))
    value, headers = chance.choice((_poison, _poison, _forged))(chance)
    return Record(topic, value, headers)


def _for_others(chance: Random, names: TopicNames) -> Record:
    """Nobody's answer, nobody's cancellation, no worker's report; no dead letter comes of these."""
    value, headers = _poison(chance)
    return Record(chance.choice((names.replies, names.cancels, names.erasures, names.workers)), value, headers)


def _packed(**changed: Any) -> bytes:
    request = {"type": "chat.request", "id": "noise", "session_id": "noise", "input": _TEXT, **changed}
    value: bytes = msgpack.packb(request)
    return value


_Drawn = tuple[bytes, dict[str, bytes]]


def _poison(chance: Random) -> _Drawn:
    """What cannot be read."""
    bad: Sequence[bytes] = (
        b"\xc1" + chance.randbytes(chance.randrange(_MOST_BYTES)),
        _packed()[: -chance.randrange(1, 40)],
        b"\xdf\xff\xff\xff\xff" + _packed()[1:],  # a map of four billion
        b"\x91" * _DEPTH,
        _packed(type=chance.choice(("", "chat.nothing", 7))),
        _packed(input=chance.choice((None, 7, [], b"\xff"))),
        _packed(id=chance.choice(("", "a/b", "x" * 65, None, "a\nb"))),
    )
    return chance.choice([*((value, {}) for value in bad), (_packed(), {"content-type": b"application/json"})])


def _forged(chance: Random) -> _Drawn:
    """What can be read, and asks for what may not be had."""
    return chance.choice(
        (
            (_packed(), {"reply-topic": b"somebody.elses.topic"}),
            (_packed(max_output_tokens=-chance.randrange(1, 1_000)), {}),
            (_packed(), {"deadline-unix-ms": b"soon"}),
        )
    )


# --- connections


def draw_connection(chance: Random) -> list[bytes]:
    """What is written to one, piece after piece; whoever writes it leaves without a good-bye."""
    noise, nobody = chance.randbytes(chance.randrange(1, 4_000)), chance.choice((None, 7, "", ["x"]))
    not_masked, endless = (
        bytes([_BINARY, 5]) + b"hello",
        bytes([_BINARY, _MASKED | _EIGHT]) + struct.pack(">Q", 1 << 40),
    )
    return chance.choice(
        (
            [noise],
            [_UPGRADE[: chance.randrange(1, len(_UPGRADE))]],
            *([_UPGRADE, broken] for broken in (noise, not_masked, endless, _frame(chance, b"", _RESERVED))),
            [*_hello(chance), _frame(chance, noise)],
            [*_hello(chance), _frame(chance, b"\x91" * _DEPTH)],
            [*_hello(chance), _frame(chance, msgpack.packb({"type": "response.create", "input": nobody}))],
        )
    )


def _frame(chance: Random, payload: bytes, opcode: int = _BINARY) -> bytes:
    """Masked, as a client's must be; of up to 65,535 bytes."""
    mask = chance.randbytes(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    size = len(payload)
    length = bytes([_MASKED | size]) if size <= _SHORT else bytes([_MASKED | _TWO]) + struct.pack(">H", size)
    return bytes([opcode]) + length + mask + masked


def _hello(chance: Random) -> list[bytes]:
    return [_UPGRADE, _frame(chance, msgpack.packb({"type": "session.start"}))]
