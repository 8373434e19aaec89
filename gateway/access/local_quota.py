"""Units a minute, counted in this process alone: what a gateway counts by itself, and all while Redis is away. Pure."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.access.charges import Charge

MINUTE_MS: Final = 60_000.0
ROUNDING_MS: Final = 0.5  # what a minute's worth of sums of milliseconds may be off


@dataclass(frozen=True, slots=True)
class Overdrawn:
    """The charge that is one too many, and in how many ms it would not be."""

    charge: Charge
    wait_ms: float


class LocalQuota:
    """A token bucket a payer, a minute's worth deep; at most `max_names`, the longest unused forgotten first."""

    def __init__(self, max_names: int = 10_000) -> None:
        self._max_names = max_names
        self._full_ms: OrderedDict[tuple[str, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_ms)

    def charge(self, charges: Sequence[Charge], now_ms: float, *, tenant: str = "") -> Overdrawn | None:
        """Charge all of the charges, or none where one is too many, which is returned. `now_ms` is monotonic; `tenant`
        tells payers of one name apart.

        A bucket is kept as the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371): each
        unit moves that time by its share of the minute, and it may not lie more than a minute ahead."""
        full_ms: dict[tuple[str, str], float] = {}
        for charge in charges:
            name: tuple[str, str] = (charge.payer, f"{tenant}/{charge.name}")
            share_ms = charge.units * MINUTE_MS / charge.per_minute
            full_ms[name] = max(self._full_ms.get(name, now_ms), now_ms) + share_ms
            wait_ms = full_ms[name] - now_ms - MINUTE_MS
            if wait_ms > ROUNDING_MS:
                return Overdrawn(charge, wait_ms)
        for name, then_ms in full_ms.items():
            self._full_ms[name] = then_ms
            self._full_ms.move_to_end(name)
        while len(self._full_ms) > self._max_names:
            self._full_ms.popitem(last=False)
        return None
