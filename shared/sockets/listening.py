"""Listen at an address: the sockets, and one line that names the settings where it cannot be done."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

from shared.errors import ListenError

EVERY_ADDRESS: Final = "::"  # of IPv4 and IPv6
# So many connections may wait to be accepted, if the system allows it (`net.core.somaxconn`). asyncio's hundred are too
# few when thousands of clients come back at once: the rest try again after one, three and seven seconds, or take
# themselves for connected where a SYN cookie answers.
BACKLOG: Final = 4_096


class ListenAddress(NamedTuple):
    """Where a server listens, and the settings or options that say so. Port 0 is a free one."""

    host: str
    port: int
    host_name: str
    port_name: str

    @classmethod
    def of_settings(cls, group: str, values: object, port: str) -> Self:
        """Return where the server of a group's port listens, as `http_port` of the group `gateway`."""
        host = "metrics_host" if port == "metrics_port" else "host"
        variables = (f"REPLYLINE_{group}__{name}".upper() for name in (host, port))
        return cls(getattr(values, host), getattr(values, port), *variables)

    def for_asyncio(self) -> dict[str, Any]:
        """Return the arguments of `create_server`. Raises `OSError`."""
        if self.host == EVERY_ADDRESS:  # asyncio itself would listen on IPv6 alone
            return {"sock": bind(self.host, self.port), "backlog": BACKLOG}
        return {"host": self.host, "port": self.port, "backlog": BACKLOG}

    def listen(self) -> socket.socket:
        """Return a listening socket. Raises `ListenError`."""
        with self.explained():
            return bind(self.host, self.port)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise `ListenError` where the body cannot listen at this address."""
        try:
            yield
        except OSError as error:
            raise ListenError(self._problem(error)) from None

    def _problem(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"port {self.port} is taken on {self.host} ({self.port_name}); end what listens there, or set "
                f"{self.port_name} to another port"
            )
        named = isinstance(error, socket.gaierror)
        why = error.strerror if named or not error.errno else os.strerror(error.errno)
        return (
            f"cannot listen on {host_port(self.host, self.port)} ({why or error}); set {self.host_name} to an address "
            f"of this machine, or {self.port_name} to another port"
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket: of a name's first IPv4 address if it has one, at `::` of every address. Raises
    `OSError`."""
    if host == EVERY_ADDRESS and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    place = "0.0.0.0" if host in {EVERY_ADDRESS, ""} else host  # noqa: S104 - asked for
    found = sorted(socket.getaddrinfo(place, port, type=socket.SOCK_STREAM), key=lambda each: each[0])
    family, *_, address = found[0]
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)


def host_port(host: str, port: int) -> str:
    """Return the host and port as a URL has them: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
