"""Decide how many bytes of its journal an edge sends to its centre in one HTTP request, and how long it waits for the
reply, from the measured rate of the connection. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

MAX_BODY_BYTES: Final = 48 * 1_024  # a gateway reads bodies of 64 KiB
_FIRST_BODY_BYTES: Final = 4 * 1_024
_LEAST_BODY_BYTES: Final = 512
_BODY_S: Final = 1.0  # the longest time that a body may delay a question sent after it
_FIRST_BYTES_PER_S: Final = 2_000.0
_LEAST_BYTES_PER_S: Final = 50.0
_ANSWER_S: Final = 5.0  # the time in which the centre stores a body's turns
_TIMES_SLOWER: Final = 3.0


@dataclass(slots=True)
class Uplink:
    """`body_bytes` is the size of the next body. A slow rate is assumed until one is measured."""

    body_bytes: int = _FIRST_BODY_BYTES
    bytes_per_s: float = _FIRST_BYTES_PER_S
    _sending_bytes: int = field(default=0, init=False)

    def limit_s(self, num_bytes: int) -> float:
        """Return how long to wait until the centre has accepted a body of that size."""
        return _ANSWER_S + _TIMES_SLOWER * num_bytes / self.bytes_per_s

    @property
    def busy_s(self) -> float:
        """Return how long the bodies that are being sent may delay a new one."""
        return self._sending_bytes / self.bytes_per_s

    @contextmanager
    def sending(self, num_bytes: int) -> Iterator[None]:
        """Count a body as being sent while the context is open."""
        self._sending_bytes += num_bytes
        try:
            yield
        finally:
            self._sending_bytes -= num_bytes

    def sent(self, num_bytes: int, took_s: float) -> None:
        """Update the rate and the next body's size after the centre accepted a body."""
        measured = num_bytes / max(took_s, 1e-3)
        self.bytes_per_s += (measured - self.bytes_per_s) / 2
        wanted = self.bytes_per_s * _BODY_S
        self.body_bytes = int(max(_LEAST_BODY_BYTES, min(wanted, 2 * self.body_bytes, MAX_BODY_BYTES)))

    def failed(self) -> None:
        """Halve the next body and the rate: the centre did not accept a body in time."""
        self.body_bytes = max(_LEAST_BODY_BYTES, self.body_bytes // 2)
        self.bytes_per_s = max(_LEAST_BYTES_PER_S, self.bytes_per_s / 2)
