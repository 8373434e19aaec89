"""Web origins (RFC 6454), as browsers write them into `Origin`: compared as they stand, character by character."""

import re
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import urlsplit

_ORIGIN: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::[1-9][0-9]{0,4})?"
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def is_serialized_origin(text: str) -> bool:
    """Return whether a browser could send this: scheme, host and port in lower case, the scheme's own port left out.

    `null`, which every sandboxed frame and local file sends, is none: it names nobody.
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
    """`sent` is every `Origin` header of a handshake, `allowed` the list (empty: any page).

    Without the header it is no browser, and a program could write whatever it likes into it: the list protects people
    who visit a page, tokens protect the service.
    """
    if not sent or not allowed:
        return True
    return len(sent) == 1 and sent[0] in allowed
