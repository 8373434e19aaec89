"""Check that the addresses typed by an operator are valid. Pure."""

from typing import Final
from urllib.parse import urlsplit

from shared.errors import SettingsError

_WAYS_IN: Final = ("ws", "wss")


def check_process(option: str, address: str) -> None:
    """Check that an address is HOST:PORT. Raises `SettingsError`."""
    try:
        parts = urlsplit(f"//{address}")
        right = bool(parts.hostname) and bool(parts.port) and parts.netloc == address and parts.username is None
    except ValueError:
        right = False
    if not right or not address.isprintable() or " " in address:
        raise SettingsError(f"{option} {address!r}: write HOST:PORT, as 10.0.0.4:8080")


def check_way_in(option: str, url: str) -> None:
    """Check the address of a WebSocket endpoint. Raises `SettingsError`."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in _WAYS_IN and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or not url.isprintable() or " " in url:
        raise SettingsError(f"{option} {url!r}: write ws://HOST:PORT/ws or wss://HOST/ws")
