"""Sign and read cursors. A cursor records how much of its open answers a client has received. Pure.

Any gateway that has the key can resume a client from its cursor. A cursor is base64url of MessagePack and a keyed
BLAKE2b (16 bytes) of tenant, session and content. It lists the open answers, how much of each the client has, and where
Kafka stores the rest (docs/decisions/0014-answers-resume-from-the-reply-topic.md).
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from typing import Annotated, Final
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from gateway.destination.destination import Destination
from shared.tracing.context import PACKED_BYTES
from shared.wire.deadline import RESUMABLE_MS
from shared.wire.fields import Count
from shared.wire.lanes import LANES
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey

_VERSION: Final = 1
_MAC_BYTES: Final = 16
_MAX_CHARS: Final = 9_216  # enough for the maximum number of open answers per connection, each of maximum length
ID_BYTES: Final = 12
ID_PREFIX: Final = "resp_"


class Place(Struct, frozen=True, array_like=True):
    """The partition and offset of a record in its topic."""

    partition: Count
    offset: Count


class ResumePoint(Struct, array_like=True):
    """How much of one open answer a client has received, so that any gateway can resume it.

    Attributes:
        log: where the answer's replies begin in the reply topic; None if unknown
        place: where the request is stored in the topic of its bucket and lane; None if it was never published
        first_token_ms: soft deadline, in ms after `received_unix_ms`
        deadline_ms: hard deadline, in ms after `received_unix_ms`
        seq: number of the next delta
        chars: number of characters sent
        crc: CRC-32 of the characters sent, encoded in UTF-8
        trace: packed context of the gateway that began the trace; None if no trace is recorded
        generation: generation of the conversation; an erasure increments it
        age_ms: time between the receipt of the request and the writing of the cursor
        lane_number: index of the request's lane in `LANES`, which keeps cursors short
    """

    digest: Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
    event_id: str
    bucket: Bucket
    received_unix_ms: Count
    first_token_ms: int
    deadline_ms: int
    log: Place | None
    place: Place | None
    seq: Count = 0
    chars: Count = 0
    crc: Count = 0
    trace: Annotated[bytes, Meta(min_length=PACKED_BYTES, max_length=PACKED_BYTES)] | None = None
    generation: Count = 0
    age_ms: Count = 0
    lane_number: Annotated[int, Meta(ge=0, lt=len(LANES))] = 0

    @property
    def destination(self) -> Destination:
        """Return where the request was sent, as far as the cursor names it."""
        return Destination(LANES[self.lane_number], bucket=self.bucket)

    @property
    def response_id(self) -> str:
        return ID_PREFIX + self.digest.hex()

    def resumable(self, now_unix_ms: float) -> bool:
        """Return whether the answer may be resumed: until two minutes after its deadline."""
        return now_unix_ms <= self.received_unix_ms + self.deadline_ms + RESUMABLE_MS

    def elapsed_ms(self, wire_unix_ms: float, age_ms: int | None) -> int:
        """Return the milliseconds since the request was received.

        Args:
            wire_unix_ms: the current time on the gateways' common clock
            age_ms: the cursor's age by the client's clock; if None, `wire_unix_ms` is used instead. The result is never
                less than the request's age when the cursor was written.
        """
        if age_ms is not None:
            return self.age_ms + age_ms
        return max(self.age_ms, int(wire_unix_ms - self.received_unix_ms))

    def add_text(self, text: str) -> None:
        """Count one more delta as sent."""
        self.seq += 1
        self.chars += len(text)
        self.crc = checksum(text, self.crc)


class Seal:
    """Writes and reads the cursors of one session."""

    __slots__ = ("_mac",)

    def __init__(self, mac: "hashlib.blake2b") -> None:
        """Create a seal from a `mac` that has already hashed the session's name."""
        self._mac = mac

    def write(self, points: Collection[ResumePoint]) -> str:
        body = _encode((_VERSION, list(points)))
        mac = self._mac.copy()
        mac.update(body)
        return urlsafe_b64encode(body + mac.digest()).decode()

    def read(self, cursor: str) -> list[ResumePoint] | None:
        """Return the open answers in a cursor. Return None if no gateway signed it for this session."""
        if len(cursor) > _MAX_CHARS:
            return None
        try:
            data = urlsafe_b64decode(cursor)
            # base64 has several encodings of the same bytes; accept only ours
            if urlsafe_b64encode(data) != cursor.encode():
                return None
        except ValueError:
            return None
        mac = self._mac.copy()
        mac.update(data[:-_MAC_BYTES])
        if not hmac.compare_digest(mac.digest(), data[-_MAC_BYTES:]):
            return None
        try:
            return _decode(data[:-_MAC_BYTES])[1]
        except msgspec.DecodeError:
            return None  # written by another version of the cursor format


class CursorKey:
    """The secret that all gateways share."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"replyline-key").digest()

    def seal(self, session: SessionKey) -> Seal:
        mac = hashlib.blake2b(key=self._key, digest_size=_MAC_BYTES, person=b"replyline-cursor")
        mac.update(f"{session.tenant}\0{session.session_id}\0".encode())  # neither holds a NUL
        return Seal(mac)

    def name(self, kind: str, *parts: str) -> str:
        """Return a name for these parts that only the gateways can compute."""
        named = hashlib.blake2b(repr(parts).encode(), key=self._key, digest_size=16, person=b"replyline-name")
        return f"{kind}-{named.hexdigest()}"


def checksum(text: str, so_far: int = 0) -> int:
    return crc32(text.encode(), so_far)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Annotated[int, Meta(ge=_VERSION, le=_VERSION)], list[ResumePoint]]).decode
