"""Check that the addresses typed by an operator are valid. Pure."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from shared.errors import SettingsError
from shared.hosts import SOCKETS, WEB, check_host, check_url, shown_url
from shared.settings.redis import without_password

_PORTS: Final = {"--gateway": 8082, "--worker": 8081}


def check_process(option: str, address: str) -> None:
    """Check that an address is HOST:PORT. Raises `SettingsError`."""
    try:
        parts = urlsplit(f"//{address}")
        right = bool(parts.hostname) and bool(parts.port) and parts.netloc == address and parts.username is None
    except ValueError:
        right = False
    if not right or not address.isprintable() or " " in address:
        raise SettingsError(
            f"{option} {shown_url(address)}: write HOST:PORT of its metrics, as 10.0.0.4:{_PORTS[option]}"
        )
    _check_host(option, address, parts.hostname)


def check_way_in(option: str, url: str) -> None:
    """Check the address of a WebSocket endpoint. Raises `SettingsError`."""
    check_option(option, url, SOCKETS, "ws://HOST:PORT/ws or wss://HOST/ws", login=None)


def check_prometheus(option: str, url: str) -> None:
    """Check the address of a Prometheus. Raises `SettingsError`."""
    check_option(
        option, url, WEB, "http://HOST:PORT or https://HOST", login="name a Prometheus that asks for none", base=True
    )


def check_option(
    option: str, url: str, schemes: Sequence[str], form: str, *, login: str | None, base: bool = False
) -> None:
    """Check an option's URL (`shared.hosts.check_url`). Raises `SettingsError`."""
    try:
        check_url(url, schemes, form=form, login=login, base=base)
    except ValueError as error:
        raise SettingsError(f"{option} {shown_url(without_password(url))}: {error}") from None


def _check_host(option: str, address: str, host: str | None) -> None:
    try:
        check_host(host)
    except ValueError as error:
        raise SettingsError(f"{option} {address}: {error}") from None
