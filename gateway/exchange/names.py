"""Name a session by the parts of a request that identify its conversation. Pure."""

from collections.abc import Iterable

from gateway.exchange.question import digest
from shared.wire.fields import is_identifier
from shared.wire.session_key import OWNED_PREFIX


def is_session_name(name: str) -> bool:
    """Return whether a client may name a session so."""
    return is_identifier(name) and not name.startswith(OWNED_PREFIX)


def session_name(named: Iterable[tuple[str, str | None]]) -> str | None:
    """Return the session that the first of these (kind, name) names; None where none does. A conversation's own name is
    kept where it can be ours, every other is hashed."""
    for kind, name in named:
        if name:
            return name if kind == "conversation" and is_session_name(name) else digest(kind, name)
    return None
