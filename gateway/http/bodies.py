"""Decode JSON bodies: pure."""

import re
from typing import Final, TypeVar

import msgspec

from shared.errors import ProtocolError

BodyT = TypeVar("BodyT", bound=msgspec.Struct)

_PATH: Final = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def read_body(data: bytes, kind: type[BodyT]) -> BodyT:
    """Decode a body. Raises `ProtocolError`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        found = _PATH.search(str(error))
        what = _PATH.sub("", str(error))
        raise ProtocolError("invalid_field", what[:200], param=(found.group(1) if found else None) or None) from None
    except _UNREADABLE:
        raise ProtocolError("bad_json", "the body is not valid JSON") from None
