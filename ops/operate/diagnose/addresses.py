"""Check that the addresses typed by an operator are valid. Pure."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from shared.errors import SettingsError
from shared.hosts import check_host

_PORTS: Final = {"--gateway": 8082, "--worker": 8081}
_WAYS_IN: Final = ("ws", "wss")
_PAGES: Final = ("http", "https")


def check_process(option: str, address: str) -> None:
    """Check that an address is HOST:PORT. Raises `SettingsError`."""
    try:
        parts = urlsplit(f"//{address}")
        right = bool(parts.hostname) and bool(parts.port) and parts.netloc == address and parts.username is None
    except ValueError:
        right = False
    if not right or not address.isprintable() or " " in address:
        raise SettingsError(f"{option} {address}: write HOST:PORT of its metrics, as 10.0.0.4:{_PORTS[option]}")
    _check_host(option, address, parts.hostname)


def check_way_in(option: str, url: str) -> None:
    """Check the address of a WebSocket endpoint. Raises `SettingsError`."""
    _check_url(option, url, _WAYS_IN, "ws://HOST:PORT/ws or wss://HOST/ws")


def check_prometheus(option: str, url: str) -> None:
    """Check the address of a Prometheus. Raises `SettingsError`."""
    _check_url(option, url, _PAGES, "http://HOST:PORT or https://HOST")


def _check_url(option: str, url: str, schemes: Sequence[str], form: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or not url.isprintable() or " " in url:
        raise SettingsError(f"{option} {url}: write {form}")
    _check_host(option, url, parts.hostname)


def _check_host(option: str, address: str, host: str | None) -> None:
    try:
        check_host(host)
    except ValueError as error:
        raise SettingsError(f"{option} {address}: {error}") from None
