"""Name a session by the parts of a request that identify its conversation. Pure."""

from collections.abc import Iterable

from gateway.exchange.question import digest
from shared.wire.fields import is_identifier
from shared.wire.session_key import OWNED_PREFIX


def is_session_name(name: str) -> bool:
    """Return whether a client may name a session so."""
    return is_identifier(name) and not name.startswith(OWNED_PREFIX)


def session_name(names: Iterable[str | None]) -> str | None:
    """Return the session that the first of these names; None if all are empty. A name that no session can have is
    hashed. Any client that knows the name may open the session: these are names that clients chose for that."""
    name = next(filter(None, names), None)
    return name if name is None or is_session_name(name) else digest("conversation", name)
