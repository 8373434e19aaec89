"""Decompress what clients and producers send. Pure."""

import zlib
from typing import Final

_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_GZIP: Final = b"\x1f\x8b"
_RAW: Final = -zlib.MAX_WBITS
_MOST_MEMBERS: Final = 64  # each costs a copy of the rest


class TooLargeError(ValueError):
    """The data is larger than allowed when decompressed."""


def inflated(data: bytes, most: int, *, raw: bool = False) -> bytes:
    """Decompress gzip, also of several members, or zlib, to at most `most` bytes. `raw`: zlib without its header.

    Raises:
        ValueError: the data is invalid or too large.
    """
    whole = bytearray()
    for _ in range(_MOST_MEMBERS):
        unzip = zlib.decompressobj(wbits=_RAW if raw else _GZIP_OR_ZLIB)
        try:
            whole += unzip.decompress(data, most - len(whole) + 1)
        except zlib.error as error:
            raise ValueError(f"neither gzip nor zlib: {error}") from None
        if len(whole) > most:
            raise TooLargeError(f"more than {most:,} bytes when decompressed")
        data = unzip.unused_data
        if not data.startswith(_GZIP):  # padding
            return bytes(whole)
    raise ValueError(f"more than {_MOST_MEMBERS} members of gzip")


def deflated(data: bytes, most: int) -> bytes:
    """Decompress HTTP's `deflate`: zlib, or what some clients send for it, raw.

    Raises:
        ValueError: the data is invalid or too large.
    """
    is_zlib = len(data) > 1 and data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0  # RFC 1950
    return inflated(data, most, raw=not is_zlib)
