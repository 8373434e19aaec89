"""Sign and read cursors, each a client's place in its open answers. Pure. Every gateway that has the key can resume
from one.

A cursor is base64url of MessagePack and a keyed BLAKE2b (16 bytes) of tenant, session and content. It lists the answers
that are open, as far as the client has them, and where Kafka holds the rest
(docs/decisions/0014-the-reply-topic-is-the-log.md).
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from typing import Annotated, Final
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from shared.tracing.context import PACKED_BYTES
from shared.wire.fields import Count
from shared.wire.lanes import LANES, Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey

RESUMABLE_MS: Final = 120_000

_VERSION: Final = 1
_MAC_BYTES: Final = 16
_MAX_CHARS: Final = 9_216  # of as many open answers as a connection may be allowed, the longest that there are
_ID_BYTES: Final = 12
_ID_PREFIX: Final = "resp_"


class Place(Struct, frozen=True, array_like=True):
    """The place of a record in its topic."""

    partition: Count
    offset: Count


class ResumePoint(Struct, array_like=True):
    """The place at which a client can resume one open answer: the part of it that the client has.

    `log` is where in the reply topic its replies begin; None where that is not known. `place` is where the topic of its
    bucket and lane holds its request; None where it was never published. The deadlines are milliseconds from
    `received_unix_ms`. `crc` is the CRC-32 of the `chars` characters sent, in UTF-8; `seq` is the next delta's number.
    `trace` is the packed context of the gateway that began its trace; None where none is recorded. `generation` is its
    conversation's. `age_ms` is how long after its receipt the cursor was written. `lane_number` is that of its
    request's lane among `LANES`: cursors are short."""

    digest: Annotated[bytes, Meta(min_length=_ID_BYTES, max_length=_ID_BYTES)]
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
    def lane(self) -> Lane:
        return LANES[self.lane_number]

    @property
    def response_id(self) -> str:
        return _ID_PREFIX + self.digest.hex()

    def resumable(self, now_unix_ms: float) -> bool:
        """Return whether an answer may be resumed: until two minutes after its deadline."""
        return now_unix_ms <= self.received_unix_ms + self.deadline_ms + RESUMABLE_MS

    def elapsed_ms(self, wire_unix_ms: float, age_ms: int | None) -> int:
        """Return the milliseconds since its receipt. `age_ms` is the cursor's age by the client's clock; where the
        client does not give it, the gateways' clocks decide, and no less than when the cursor was written."""
        if age_ms is not None:
            return self.age_ms + age_ms
        return max(self.age_ms, int(wire_unix_ms - self.received_unix_ms))

    def add_text(self, text: str) -> None:
        """One more delta has left."""
        self.seq += 1
        self.chars += len(text)
        self.crc = checksum(text, self.crc)


class Seal:
    """Writes and reads the cursors of one session."""

    __slots__ = ("_mac",)

    def __init__(self, mac: "hashlib.blake2b") -> None:
        """Make a seal from a `mac` that has the session's name already."""
        self._mac = mac

    def write(self, points: Collection[ResumePoint]) -> str:
        body = _encode((_VERSION, list(points)))
        mac = self._mac.copy()
        mac.update(body)
        return urlsafe_b64encode(body + mac.digest()).decode()

    def read(self, cursor: str) -> list[ResumePoint] | None:
        """Return the open answers; None where this session's gateways have not written it."""
        if len(cursor) > _MAX_CHARS:
            return None
        try:
            data = urlsafe_b64decode(cursor)
            if urlsafe_b64encode(data) != cursor.encode():  # of several ways to write the bytes one is ours
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
            return None  # another version's


class CursorKey:
    """The gateways' common secret."""

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


def response_digest(session: SessionKey, event_id: str, text: str, generation: int = 0) -> bytes:
    """Return the digest of a request's id: the same at every gateway, and another for another question under the same
    event's name, or in another generation of the conversation."""
    named = f"{session.tenant}\0{session.session_id}\0{event_id}\0{text}".encode()
    salt = generation.to_bytes(8)
    return hashlib.blake2b(named, digest_size=_ID_BYTES, person=b"replyline-id", salt=salt).digest()


def response_id(session: SessionKey, event_id: str, text: str, generation: int = 0) -> str:
    return _ID_PREFIX + response_digest(session, event_id, text, generation).hex()


def digest_of(name: str) -> bytes:
    return bytes.fromhex(name.removeprefix(_ID_PREFIX))


def checksum(text: str, so_far: int = 0) -> int:
    return crc32(text.encode(), so_far)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Annotated[int, Meta(ge=_VERSION, le=_VERSION)], list[ResumePoint]]).decode
