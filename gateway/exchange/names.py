"""Name a session by the parts of a request that identify its conversation. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from gateway.exchange.question import digest
from shared.wire.fields import MAX_ID_CHARS
from shared.wire.session_key import OWNED_PREFIX

_IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.:\-]{{0,{MAX_ID_CHARS - 1}}}")


def is_session_name(name: str) -> bool:
    """Return whether a client may name a session so."""
    return _IDENTIFIER.fullmatch(name) is not None and not name.startswith(OWNED_PREFIX)


def session_name(named: Iterable[tuple[str, str | None]]) -> str | None:
    """Return the session that the first of these (kind, name) names; None where none does. A conversation's own name is
    kept where it can be ours, every other is hashed."""
    for kind, name in named:
        if name:
            return name if kind == "conversation" and is_session_name(name) else digest(kind, name)
    return None
