"""Decode JSON bodies: pure."""

from typing import Final, TypeVar

import msgspec

from shared.errors import ProtocolError
from shared.wire.codec import read_validation_error

BodyT = TypeVar("BodyT", bound=msgspec.Struct)

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def read_body(data: bytes, kind: type[BodyT]) -> BodyT:
    """Decode a body. Raises `ProtocolError`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        expected, param = read_validation_error(error)
        raise ProtocolError("invalid_field", expected, param=param) from None
    except _UNREADABLE:
        raise ProtocolError("bad_json", "the body is not valid JSON") from None
