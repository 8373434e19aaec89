"""Build and parse the ids of stored OpenAI responses. Pure.

An id is `resp_<digest>.<kind><session>.<cursor>`. The cursor says where the answer begins, so any gateway can find it
again: in memory, in the conversation's history in Redis, or in the reply topic.
"""

import re
from dataclasses import dataclass
from typing import Final

from gateway.exchange.question import is_session_name
from shared.errors import ProtocolError

_RESPONSE: Final = re.compile(
    r"resp_(?P<id>[0-9a-f]{24})\.(?P<kind>[ct])(?P<session>[^/]+)\.(?P<cursor>[A-Za-z0-9_-]+)"
)
_ITEM: Final = re.compile(r"msg_(?P<id>[0-9a-f]{24})\.(?P<kind>[ct])(?P<session>[^/]+)(?P<cursor>)")
_MAX_NAME_CHARS: Final = 16_384


@dataclass(frozen=True, slots=True)
class ResponseName:
    """The name of a stored response or, without a `cursor`, of its message. `goes_on`: the gateways store its
    conversation; otherwise its client sends the conversation each time."""

    response_id: str
    session: str
    cursor: str
    goes_on: bool

    def __str__(self) -> str:
        kind = "c" if self.goes_on else "t"
        return f"{self.response_id}.{kind}{self.session}.{self.cursor.rstrip('=')}"


def read_response_name(name: str, param: str) -> ResponseName:
    """Read a response's name. Raises `ProtocolError` if it is malformed."""
    found = _read(_RESPONSE, name)
    if found is None:
        raise unknown_response(param)
    return found


def item_id(response_name: str) -> str:
    """Return the id of a response's message."""
    head, _, cursor = response_name.removeprefix("resp_").rpartition(".")
    return f"msg_{head or cursor}"


def read_item_id(item: str) -> ResponseName | None:
    """Return the response that a message's id names; None if the id is malformed or the response is not stored."""
    return _read(_ITEM, item)


def _read(form: re.Pattern[str], name: str) -> ResponseName | None:
    found = form.fullmatch(name) if len(name) <= _MAX_NAME_CHARS else None
    if found is None or not is_session_name(found["session"]):
        return None
    cursor = found["cursor"] + "=" * (-len(found["cursor"]) % 4)
    return ResponseName(f"resp_{found['id']}", found["session"], cursor, goes_on=found["kind"] == "c")


def unknown_response(param: str) -> ProtocolError:
    told = "no response is stored under this id: it is wrong, too old or erased"
    return ProtocolError("response_not_found", told, param=param)
