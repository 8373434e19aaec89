"""Choose how much to send over an uplink at once, and how long to wait for it, by how fast it was. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

MAX_BODY_BYTES: Final = 48 * 1_024  # a gateway reads bodies of 64 KiB
_FIRST_BODY_BYTES: Final = 4 * 1_024
_LEAST_BODY_BYTES: Final = 512
_BODY_S: Final = 1.0  # so long a question that is sent behind a body waits for it
_FIRST_BYTES_PER_S: Final = 2_000.0
_LEAST_BYTES_PER_S: Final = 50.0
_ANSWER_S: Final = 5.0  # the centre writes a body's turns meanwhile
_TIMES_SLOWER: Final = 3.0


@dataclass(slots=True)
class Uplink:
    """`body_bytes` is the size of the next body. The rate is believed to be slow until it is measured."""

    body_bytes: int = _FIRST_BODY_BYTES
    bytes_per_s: float = _FIRST_BYTES_PER_S
    _sending_bytes: int = field(default=0, init=False)

    def limit_s(self, num_bytes: int) -> float:
        """Return how long to wait until a body of that size is taken."""
        return _ANSWER_S + _TIMES_SLOWER * num_bytes / self.bytes_per_s

    @property
    def busy_s(self) -> float:
        """Return how long what is being sent may hold up what is sent now."""
        return self._sending_bytes / self.bytes_per_s

    @contextmanager
    def sending(self, num_bytes: int) -> Iterator[None]:
        """Note that a body is being sent."""
        self._sending_bytes += num_bytes
        try:
            yield
        finally:
            self._sending_bytes -= num_bytes

    def sent(self, num_bytes: int, took_s: float) -> None:
        """Learn from a body that was taken."""
        measured = num_bytes / max(took_s, 1e-3)
        self.bytes_per_s += (measured - self.bytes_per_s) / 2
        wanted = self.bytes_per_s * _BODY_S
        self.body_bytes = int(max(_LEAST_BODY_BYTES, min(wanted, 2 * self.body_bytes, MAX_BODY_BYTES)))

    def failed(self) -> None:
        """Learn from a body that was not taken in time: half of it, and twice the time for its bytes."""
        self.body_bytes = max(_LEAST_BODY_BYTES, self.body_bytes // 2)
        self.bytes_per_s = max(_LEAST_BYTES_PER_S, self.bytes_per_s / 2)
