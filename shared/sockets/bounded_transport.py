"""Bound what one accepted connection may hold, the same at every port: a place, time, and unread bytes.

A server's protocol gets this transport in the place of its own. It counts the connection at accept, passes what comes
on in small parts, reads nothing from a client that does not read, and ends a connection that is late.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from shared.errors import ProtocolError
from shared.sockets.open_sockets import OpenSockets

HEAD_BYTES: Final = 65_536  # of a request's line and headers together
HEAD_LINES: Final = 100
_PART_BYTES: Final = 8_192  # parsed in one turn of the event loop
_CLOSE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`head_s`: seconds from a request's first byte until its headers are complete. `unread_s`: seconds that a client
    may leave a full write buffer unread. A full one has `unread_bytes` (0: the event loop's default)."""

    sockets: OpenSockets
    head_s: float
    unread_s: float
    unread_bytes: int = 0


class BoundedTransport:
    """One accepted connection. Its methods are `asyncio.Transport`'s, and those of the bounds."""

    def __init__(self, transport: asyncio.Transport, bounds: Bounds) -> None:
        """Count the connection; one too many is aborted at once."""
        self._transport, self._bounds = transport, bounds
        self._loop = asyncio.get_running_loop()
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._parts = bytearray()
        self._pass_on: Callable[[bytes], None] | None = None
        self._paused = self._full = self._is_scheduled = False
        self.head_bytes = 0
        # Bound once: a delta costs no further call.
        self.write, self.write_eof, self.can_write_eof = transport.write, transport.write_eof, transport.can_write_eof
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.set_write_buffer_limits = transport.set_write_buffer_limits
        if bounds.unread_bytes:
            transport.set_write_buffer_limits(bounds.unread_bytes)
        peer: Any = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        try:
            self._enter()
        except ProtocolError:
            self.abort()
        self.begin_head()

    def _enter(self) -> None:
        sockets = self._bounds.sockets
        if isinstance(idle := sockets.gives_way(), BoundedTransport):
            sockets.remove(idle)
            idle.abort()
        sockets.add(self, self.peer)

    @property
    def refusal(self) -> ProtocolError | None:
        """Return why this connection is to be refused; None where it has a place."""
        return self._bounds.sockets.refusal(self)

    @property
    def is_proxied(self) -> bool:
        """Return whether the peer is a proxy, whose client is known by a request's headers only."""
        return not self._bounds.sockets.is_limited(self.peer)

    def charge(self, address: str) -> None:
        """Count the connection as this client's."""
        with suppress(ProtocolError, KeyError):  # of no place left `refusal` tells
            self._bounds.sockets.assign_address(self, address)

    def lost(self) -> None:
        """Give the place back: the connection is gone."""
        self._bounds.sockets.remove(self)
        self._parts.clear()
        for timer in (self._head, self._unread):
            if timer is not None:
                timer.cancel()

    # A request's head

    def begin_head(self) -> None:
        """Wait for a request's head, for `head_s` at most; called again it changes nothing."""
        if self._head is None:
            self._bounds.sockets.wait(self)
            self._head = self._loop.call_later(self._bounds.head_s, self.close)

    def end_head(self) -> None:
        """Note that a request's head is complete, and answered where it asks for a WebSocket."""
        self._bounds.sockets.serve(self)
        if self._head is not None:
            self._head.cancel()
            self._head = None

    # What comes in

    def receive(self, data: bytes, pass_on: Callable[[bytes], None]) -> None:
        """Pass data on, a part in each turn of the loop; nothing more is read until all has been."""
        self._pass_on = pass_on
        if self._parts or len(data) > _PART_BYTES:
            self._parts += data
            self._schedule()
        else:
            pass_on(data)
        self._set_reading()

    def _schedule(self) -> None:
        if self._parts and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_part)

    def _next_part(self) -> None:
        self._is_scheduled = False
        part = bytes(self._parts[:_PART_BYTES])
        del self._parts[:_PART_BYTES]
        if part and self._pass_on is not None and not self.is_closing():
            self._pass_on(part)
        self._schedule()
        self._set_reading()

    def drop_parts(self) -> None:
        """Drop what came behind a request for another protocol: no client speaks that before it is answered."""
        self._parts.clear()

    def pause_reading(self) -> None:
        self._paused = True
        self._set_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._set_reading()

    def _set_reading(self) -> None:
        """Read only what its protocol takes, and only from a client that reads."""
        if self.is_closing():
            return
        if self._paused or self._full or self._parts:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # What goes out

    def fill(self) -> None:
        """Note that the write buffer is full: the client has `unread_s` to read most of it."""
        self._full = True
        self._unread = self._loop.call_later(self._bounds.unread_s, self.abort)
        self._set_reading()

    def drain(self) -> None:
        """Note that the client has read most of what was written."""
        self._full = False
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        self._set_reading()

    def close(self) -> None:
        """Close once all is written; a client that does not read that in time is cut off."""
        if self.get_write_buffer_size():
            self._loop.call_later(_CLOSE_S, self.abort)
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)
