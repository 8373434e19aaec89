"""What a recording is made of. Pure.

A recording is a stream of MessagePack maps, each with a `type`: a `Header`, then an `Asked` for each request and an
`Answered` for each answer in the order in which they came, then an `End`, with the checksum of all before it.
"""

import hashlib
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from shared.wire.fields import Stop
from shared.wire.messages import Bucket, Source

VERSION: Final = 1
# Of the tokenizer whose tokens are bytes.
BYTES: Final = "bytes"
_HASH_BYTES: Final = 8
_TAG: Final = "type"

_Tokens = Annotated[int, Meta(ge=0, le=1_000_000)]
_Ms = Annotated[int, Meta(ge=1, le=86_400_000)]


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field=_TAG, tag="replyline.recording"):
    """`tokenizer` is whose tokens are counted: the model's folder by its name, or "bytes"."""

    version: int
    started_unix_ms: int
    tokenizer: str
    topics: tuple[str, ...]


class Asked(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field=_TAG, tag="asked"):
    """A request. `at_ms` runs from the first one's arrival in its topic, `first_token_ms` and `deadline_ms` from the
    request's own creation. `tenant` and `session` are hashes by a key that nobody keeps.

    `text` and `stop` are there only where the customer has consented; `input_tokens` are the text's, always.
    """

    at_ms: Annotated[float, Meta(ge=0)]
    bucket: Bucket
    tenant: str
    session: str
    input_tokens: _Tokens
    max_output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)]
    first_token_ms: _Ms
    deadline_ms: _Ms
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    stop: Stop = ()
    text: str | None = None


class Answered(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field=_TAG, tag="answered"):
    """The first end of a request's answer. `number` is the request's place among those asked, from 0. `whole`: by the
    model, completed or as long as was asked. `prompt_tokens` are of the whole prompt."""

    number: Annotated[int, Meta(ge=0)]
    source: Source
    whole: bool
    prompt_tokens: _Tokens = 0
    output_tokens: _Tokens = 0


class End(Struct, frozen=True, kw_only=True, tag_field=_TAG, tag="end"):
    """`crc32` is that of every byte before this entry, big-endian."""

    crc32: bytes


Entry = Header | Asked | Answered | End

encode: Final = msgspec.msgpack.Encoder().encode
END_BYTES: Final = len(encode(End(crc32=bytes(4))))
END_HEAD: Final = encode(End(crc32=bytes(4)))[:-4]


def hashed(key: bytes, *parts: str) -> str:
    """A name that tells equal from unequal within one recording, and nothing to whom the key is unknown."""
    return hashlib.blake2b("/".join(parts).encode(), key=key, digest_size=_HASH_BYTES).hexdigest()
