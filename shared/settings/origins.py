"""Web origins (RFC 6454) as browsers write them into `Origin`; they are compared character by character."""

import re
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import urlsplit

_ORIGIN: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::[1-9][0-9]{0,4})?"
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_serialized_origin(text: str) -> bool:
    """Return whether a browser could send this origin: lower case, and without the scheme's default port.

    `null`, which every sandboxed frame and local file sends, is not accepted: it does not identify a site.
    """
    if not _ORIGIN.fullmatch(text):
        return False
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return False
    return port is None or port != _DEFAULT_PORTS.get(url.scheme)


def origin_may_connect(sent: Sequence[str], allowed: Collection[str]) -> bool:
    """Return whether a handshake with these `Origin` headers may connect.

    A program that is not a browser can omit the header or forge it, so a missing one is accepted: the list protects
    people who visit a page, tokens protect the service.

    Args:
        sent: every `Origin` header of the handshake.
        allowed: the allowed origins; if empty, any page may connect.
    """
    if not sent or not allowed:
        return True
    return len(sent) == 1 and sent[0] in allowed
