"""Check whether a gateway's port is free, a Replyline's, or another program's."""

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
    """In the words of the doctor's table."""

    FREE = "free"
    REPLYLINE = "Replyline answers there"
    OTHER = "something else listens there"
    UNUSABLE = "cannot be listened to: no right to the port, or no address of this machine"


def port_use(host: str, port: int) -> PortUse:
    """Return the use of a port. A program that does not answer takes one second."""
    problem = listen_problem(host, port)
    if problem is None:
        return PortUse.FREE
    if problem.errno != errno.EADDRINUSE:
        return PortUse.UNUSABLE
    return PortUse.REPLYLINE if _is_replyline(_ANY_ADDRESS.get(host, host), port) else PortUse.OTHER


def listen_problem(host: str, port: int) -> OSError | None:
    """Return why listening there fails now, `EADDRINUSE` for a taken port; None if it does not."""
    try:
        with bind(host, port):
            return None
    except OSError as error:
        return error


def another_port(port: int) -> int:
    """Return a port to try instead: the next one if it needs no privilege."""
    return port + 1 if _LOWEST_OF_ANYBODY <= port < _HIGHEST else _USUAL


def _is_replyline(host: str, port: int) -> bool:
    """Only a Replyline serves a page with this element."""
    return _OF_OURS in (_get(host, port, "/") or b"")


def _get(host: str, port: int, path: str) -> bytes | None:
    """Return the page's body; None where there is no answer of HTTP in time."""
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
