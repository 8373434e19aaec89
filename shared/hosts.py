"""Check URLs and the names of hosts. Pure."""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import SplitResult, urlsplit

_FORBIDDEN: Final = re.compile(r"""[\s\\"<>]""")
_HOST: Final = re.compile(r"[\w.-]+|[0-9a-fA-F.]*:[0-9a-fA-F:.]*(?:%[\w.-]+)?")
WEB: Final = ("http", "https")
SOCKETS: Final = ("ws", "wss")


def check_url(url: str, schemes: Collection[str], *, form: str, login: str | None, base: bool = False) -> SplitResult:
    """Return the parts of a URL.

    Args:
        url: the URL.
        schemes: those that it may have.
        form: a correct URL, for the message.
        login: what to do with a user and a password, for the message. None: the URL may have them.
        base: a path is appended to it, so it may have no query and no fragment.

    Raises:
        ValueError: it has another scheme, no host, a port that is not in 1 to 65535, a user or a password, or a
            character that no URL has. The text is the remedy.
    """
    try:
        parts = urlsplit(url)
        whole = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets, or the port
        whole = False
    if not whole or (base and {*"?#"} & {*url}) or not url.isprintable() or _FORBIDDEN.search(url):
        raise ValueError(f"write {form}")
    if login is not None and "@" in parts.netloc:
        raise ValueError(f"a URL must not contain a user or a password; {login}")
    check_host(parts.hostname)
    return parts


def shown_url(url: str) -> str:
    """Return a URL as one line."""
    return url if url and url.isprintable() else repr(url)


def check_host(host: str | None) -> None:
    """Raise `ValueError`, with the remedy, for a host that no resolver accepts. None is accepted.

    Python's resolver raises `UnicodeError` for such a name, where its callers expect an `OSError`.
    """
    if host and not _HOST.fullmatch(host):
        raise ValueError(f"the host {host!r} has a character that no host's name has; correct it")
    try:
        (host or "").encode("idna")
    except UnicodeError:
        raise ValueError(
            f"the host {host} has nothing or more than 63 characters between two dots; correct its name"
        ) from None
