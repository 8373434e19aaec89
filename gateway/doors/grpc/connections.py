"""Count the connections of the gRPC port. The gRPC library accepts them itself and does not report them.

On Linux, the process's open sockets are inspected: those on this port are counted like the other doors' connections,
and a connection over the limit is shut down.
"""

import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.errors import ProtocolError
from shared.sockets.open_sockets import OpenSockets

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_DESCRIPTORS: Final = Path("/proc/self/fd")


def open_files() -> dict[int, int]:
    """Return the descriptors of the process's open sockets by inode; empty without `/proc`."""
    found: dict[int, int] = {}
    with suppress(OSError):
        for path in _DESCRIPTORS.iterdir():
            with suppress(OSError):  # closed in the meantime
                file = os.fstat(int(path.name))
                if stat.S_ISSOCK(file.st_mode):
                    found[file.st_ino] = int(path.name)
    return found


def _duplicate(inode: int, descriptor: int) -> socket.socket:
    """Return a duplicate of a socket. Raises `OSError` if its descriptor belongs to another file by now."""
    own = os.dup(descriptor)
    file = os.fstat(own)
    if file.st_ino != inode or not stat.S_ISSOCK(file.st_mode):
        os.close(own)
        raise OSError
    return socket.socket(fileno=own)


@dataclass(slots=True)
class GrpcConnections:
    """Counts the connections to `port` in `sockets`."""

    sockets: OpenSockets
    port: int
    _known: set[int] = field(default_factory=set)  # inodes seen before

    def update(self, found: dict[int, int]) -> None:
        """Count new connections among the open files, and release the closed ones."""
        for inode in self._known - found.keys():
            self.sockets.remove(("grpc", inode))
        for inode in found.keys() - self._known:
            self._count(inode, found[inode])
        self._known = set(found)

    def _count(self, inode: int, descriptor: int) -> None:
        """Count a socket if it is a connection to this port, and shut it down if it exceeds the limit."""
        with suppress(OSError), _duplicate(inode, descriptor) as own:
            if own.family not in _FAMILIES or own.getsockname()[1] != self.port:
                return
            with suppress(ProtocolError):
                self.sockets.add(("grpc", inode), own.getpeername()[0])
                if self.sockets.refusal(("grpc", inode)) is None:
                    return
            self.sockets.remove(("grpc", inode))
            own.shutdown(socket.SHUT_RDWR)
