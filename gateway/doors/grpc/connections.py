"""Count the connections of the gRPC port, whose library accepts them itself and reports none.

The process's own sockets are looked through, on Linux alone: those at this port are counted by the mechanism of the
other doors, and one too many is shut down.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.errors import ProtocolError
from shared.sockets.open_sockets import OpenSockets

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_DESCRIPTORS: Final = Path("/proc/self/fd")


def open_files() -> dict[int, int]:
    """Return the process's open descriptors by their inodes. None where there is no `/proc`."""
    found: dict[int, int] = {}
    with suppress(OSError):
        for path in _DESCRIPTORS.iterdir():
            with suppress(OSError):  # closed meanwhile
                found[os.fstat(int(path.name)).st_ino] = int(path.name)
    return found


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
        """Count a file that is a connection of this port, and shut down one that has no place."""
        # A duplicate: the descriptor may be another file's by now.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
            if own.family not in _FAMILIES or own.getsockname()[1] != self.port:
                return
            with suppress(ProtocolError):
                self.sockets.add(("grpc", inode), own.getpeername()[0])
                if self.sockets.refusal(("grpc", inode)) is None:
                    return
            self.sockets.remove(("grpc", inode))
            own.shutdown(socket.SHUT_RDWR)
