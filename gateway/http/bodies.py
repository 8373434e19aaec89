"""Decode JSON bodies. Pure."""

from functools import cache
from typing import Final, TypeVar, cast

import msgspec

from shared.errors import ProtocolError
from shared.wire.codec import read_validation_error
from shared.wire.lenient import UNREADABLE, lenient_json

BodyT = TypeVar("BodyT", bound=msgspec.Struct)

_decoder: Final = cache(lenient_json)


def read_body(data: bytes, kind: type[BodyT]) -> BodyT:
    """Decode a body. Raises `ProtocolError`."""
    try:
        return cast(BodyT, _decoder(kind)(data))
    except msgspec.ValidationError as error:
        expected, param = read_validation_error(error)
        raise ProtocolError("invalid_field", expected, param=param) from None
    except UNREADABLE:
        told = "the body is not valid JSON" if data.strip() else "the body is empty; send JSON"
        raise ProtocolError("bad_json", told) from None
