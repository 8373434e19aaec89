"""Check whether a gateway's port is free, used by a Replyline, or used by another program."""

import errno
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from typing import Final

from shared.sockets.listening import bind

_TIMEOUT_S: Final = 1.0
_LOWEST_OF_ANYBODY: Final = 1_024
_HIGHEST: Final = 65_535
_USUAL: Final = 8_080
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - asked, not bound
_OF_OURS: Final = b"<replyline-chat"


class PortUse(StrEnum):
    """The use of a port, as shown in the doctor's table."""

    FREE = "free"
    REPLYLINE = "Replyline answers there"
    OTHER = "something else listens there"
    UNUSABLE = "cannot be used: no permission for the port, or not an address of this machine"


def port_use(host: str, port: int) -> PortUse:
    """Return the use of a port."""
    problem = listen_problem(host, port)
    if problem is None:
        return PortUse.FREE
    if problem.errno != errno.EADDRINUSE:
        return PortUse.UNUSABLE
    return PortUse.REPLYLINE if is_replyline(host, port) else PortUse.OTHER


def listen_problem(host: str, port: int) -> OSError | None:
    """Return why listening there fails, `EADDRINUSE` for a used port; None if it succeeds."""
    try:
        with bind(host, port):
            return None
    except OSError as error:
        return error


def another_port(port: int) -> int:
    """Return another port to try: the next one if it needs no privilege."""
    return port + 1 if _LOWEST_OF_ANYBODY <= port < _HIGHEST else _USUAL


def is_replyline(host: str, port: int) -> bool:
    """Return whether a Replyline answers: only its page has this element. A program that does not answer delays this by
    one second."""
    return _OF_OURS in (_get(_ANY_ADDRESS.get(host, host), port, "/") or b"")


def _get(host: str, port: int, path: str) -> bytes | None:
    """Return the body of a page; None without an HTTP answer in time."""
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
