"""Count the connections of the gRPC port, whose library accepts them itself and reports none.

The process's own sockets are looked through, on Linux alone: those at this port are counted by the mechanism of the
other doors, and one too many is shut down.
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
    """Return the descriptors of the process's open sockets by their inodes. None where there is no `/proc`."""
    found: dict[int, int] = {}
    with suppress(OSError):
        for path in _DESCRIPTORS.iterdir():
            with suppress(OSError):  # closed meanwhile
                file = os.fstat(int(path.name))
                if stat.S_ISSOCK(file.st_mode):
                    found[file.st_ino] = int(path.name)
    return found


def _duplicate(inode: int, descriptor: int) -> socket.socket:
    """Return a duplicate of a socket. Raises `OSError` if another file has its descriptor by now."""
    own = os.dup(descriptor)
    file = os.fstat(own)
    if file.st_ino != inode or not stat.S_ISSOCK(file.st_mode):
        os.close(own)
        raise OSError
    return socket.socket(fileno=own)


@dataclass(slots=True)
class GrpcConnections:
    """`sockets` counts the connections to `port`."""

    sockets: OpenSockets
    port: int
    _known: set[int] = field(default_factory=set)  # inodes that have been looked at

    def update(self, found: dict[int, int]) -> None:
        """Count the connections that are new among the open files, and give back the places of those that are gone."""
        for inode in self._known - found.keys():
            self.sockets.remove(("grpc", inode))
        for inode in found.keys() - self._known:
            self._count(inode, found[inode])
        self._known = set(found)

    def _count(self, inode: int, descriptor: int) -> None:
        """Count a socket that is a connection of this port, and shut down one that has no place."""
        with suppress(OSError), _duplicate(inode, descriptor) as own:
            if own.family not in _FAMILIES or own.getsockname()[1] != self.port:
                return
            with suppress(ProtocolError):
                self.sockets.add(("grpc", inode), own.getpeername()[0])
                if self.sockets.refusal(("grpc", inode)) is None:
                    return
            self.sockets.remove(("grpc", inode))
            own.shutdown(socket.SHUT_RDWR)
