"""Name conversations, events and responses by what a request says of them: pure.

The id of a response that is kept is `resp_<digest>.<kind><session>.<cursor>`. The cursor is that of its beginning, so
that any gateway finds the answer in its table, in the conversation's history, or in the log.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.exchange.question import digest
from shared.errors import ProtocolError
from shared.wire.fields import MAX_ID_CHARS
from shared.wire.session_key import OWNED_PREFIX

_IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.:\-]{{0,{MAX_ID_CHARS - 1}}}")
_RESPONSE: Final = re.compile(
    r"(?P<id>resp_[0-9a-f]{24})\.(?P<kind>[ct])(?P<session>[^/]+)\.(?P<cursor>[A-Za-z0-9_-]+)"
)
_MAX_NAME_CHARS: Final = 16_384


def session_name(named: Iterable[tuple[str, str | None]]) -> str | None:
    """Return the session that the first of these (kind, name) names; None where none does. A conversation's own name is
    kept where it can be ours, every other is hashed."""
    for kind, name in named:
        if name:
            kept = kind == "conversation" and _IDENTIFIER.fullmatch(name) and not name.startswith(OWNED_PREFIX)
            return name if kept else digest(kind, name)
    return None


@dataclass(frozen=True, slots=True)
class ResponseName:
    """A kept response. `goes_on`: its conversation is remembered here; else its client told of it, and keeps it."""

    response_id: str
    session: str
    cursor: str
    goes_on: bool

    def __str__(self) -> str:
        kind = "c" if self.goes_on else "t"
        return f"{self.response_id}.{kind}{self.session}.{self.cursor.rstrip('=')}"


def read_response_name(name: str, param: str) -> ResponseName:
    """Read a response's name. Raises `ProtocolError` for what is none of ours."""
    found = _RESPONSE.fullmatch(name) if len(name) <= _MAX_NAME_CHARS else None
    if found is None or not _IDENTIFIER.fullmatch(found["session"]) or found["session"].startswith(OWNED_PREFIX):
        raise unknown_response(param)
    cursor = found["cursor"] + "=" * (-len(found["cursor"]) % 4)
    return ResponseName(found["id"], found["session"], cursor, goes_on=found["kind"] == "c")


def unknown_response(param: str) -> ProtocolError:
    return ProtocolError("response_not_found", "no such response is kept here", param=param)
