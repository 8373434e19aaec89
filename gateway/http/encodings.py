"""Decode a request's body by its `Content-Encoding`. Pure."""

from collections.abc import Callable, Iterable
from typing import Final

from shared.errors import ProtocolError
from shared.wire.compressed import TooLargeError, deflated, inflated

ACCEPTED: Final = "gzip, deflate"
_MOST_CODINGS: Final = 2
_SHOWN_CHARS: Final = 40
_DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {"gzip": inflated, "x-gzip": inflated, "deflate": deflated}


def decoded(data: bytes, headers: Iterable[str], most: int) -> bytes:
    """Return the body that these headers encode, of at most `most` bytes. Raises `ProtocolError`."""
    names = [name.strip().lower() for header in headers for name in header.split(",")]
    codings = [name for name in names if name not in {"", "identity"}]
    if len(codings) > _MOST_CODINGS or not _DECODERS.keys() >= set(codings):
        shown = ", ".join(codings)[:_SHOWN_CHARS]
        raise ProtocolError("unsupported_encoding", f"Content-Encoding {shown}: send one of {ACCEPTED}, or none")
    for coding in reversed(codings):
        try:
            data = _DECODERS[coding](data, most)
        except TooLargeError as error:
            raise ProtocolError("body_too_large", f"the body has {error}") from None
        except ValueError:
            raise ProtocolError("bad_encoding", f"the body is not {coding}, as its Content-Encoding says") from None
    return data
