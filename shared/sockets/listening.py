"""Listen at an address; a failure is one line that names the settings."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

from shared.errors import ListenError

EVERY_ADDRESS: Final = "::"  # all IPv4 and IPv6 addresses
# Length of the accept queue, if the system allows it (`net.core.somaxconn`). asyncio's default of 100 is too small when
# thousands of clients reconnect at the same time: the others would retry after one, three and seven seconds, or believe
# that they are connected if a SYN cookie answers.
BACKLOG: Final = 4_096


class ListenAddress(NamedTuple):
    """Where a server listens, and the names of its settings or options. Port 0 means any free port."""

    host: str
    port: int
    host_name: str
    port_name: str

    @classmethod
    def of_settings(cls, group: str, values: object, port: str) -> Self:
        """Return the address of a settings group's port, such as `http_port` of the group `gateway`."""
        host = "metrics_host" if port == "metrics_port" else "host"
        variables = (f"REPLYLINE_{group}__{name}".upper() for name in (host, port))
        return cls(getattr(values, host), getattr(values, port), *variables)

    def for_asyncio(self) -> dict[str, Any]:
        """Return the arguments of asyncio's `create_server`.

        Raises:
            OSError: the address cannot be bound.
        """
        if self.host == EVERY_ADDRESS:  # asyncio itself would listen on IPv6 only
            return {"sock": bind(self.host, self.port), "backlog": BACKLOG}
        return {"host": self.host, "port": self.port, "backlog": BACKLOG}

    def listen(self) -> socket.socket:
        """Return a listening socket.

        Raises:
            ListenError: the address cannot be bound.
        """
        with self.explained():
            return bind(self.host, self.port)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert an `OSError` of the body to a `ListenError`, and the resolver's `UnicodeError` for a wrong name."""
        try:
            yield
        except (OSError, UnicodeError) as error:
            raise ListenError(self._problem(error)) from None

    def _problem(self, error: OSError | UnicodeError) -> str:
        if isinstance(error, UnicodeError):
            error = socket.gaierror("no host has this name")
        if error.errno == errno.EADDRINUSE:
            return (
                f"port {self.port} is in use on {self.host} ({self.port_name}); stop the process that listens there, "
                f"or set {self.port_name} to another port"
            )
        named = isinstance(error, socket.gaierror)
        why = error.strerror if named or not error.errno else os.strerror(error.errno)
        return (
            f"cannot listen on {host_port(self.host, self.port)} ({why or error}); set {self.host_name} to an address "
            f"of this machine, or {self.port_name} to another port"
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket: for a name on its first IPv4 address if it has one, for `::` on every address.

    Raises:
        OSError: the address cannot be bound.
    """
    if host == EVERY_ADDRESS and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    place = "0.0.0.0" if host in {EVERY_ADDRESS, ""} else host  # noqa: S104 - asked for
    found = sorted(socket.getaddrinfo(place, port, type=socket.SOCK_STREAM), key=lambda each: each[0])
    family, *_, address = found[0]
    return socket.create_server(address[:2], family=family, backlog=BACKLOG)


def host_port(host: str, port: int) -> str:
    """Return host and port as in a URL; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
