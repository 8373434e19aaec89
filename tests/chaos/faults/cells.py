"""Which fault of the network, where, and when: pure. A cell is one fault on one hop, under a load of its own."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.errors import SettingsError
from tests.chaos.faults.schedule import NETWORK, Kind

_LEAD_S: Final = 0.4
_RESET_EVERY_S: Final = 0.8
_SLOW_CLOSE_EVERY_S: Final = 1.6
_SILENT_S: Final = 2.4  # longer than the consumers' session timeout: the group takes a silent member for dead
_SILENT_EVERY_S: Final = 6.0
_FEWEST_S: Final = 3.0


class Hop(StrEnum):
    """Between whom: clients and gateways; gateways, workers and Kafka; gateways, workers and Redis."""

    CLIENT = "client"
    KAFKA = "kafka"
    REDIS = "redis"


@dataclass(frozen=True, slots=True)
class Cell:
    fault: Kind
    hop: Hop

    def __str__(self) -> str:
        return f"{self.fault}:{self.hop}"


@dataclass(frozen=True, slots=True)
class Pulse:
    """The fault from `at_s` of the load, for `for_s`."""

    at_s: float
    for_s: float


ALL: Final = tuple(Cell(fault, hop) for hop in Hop for fault in NETWORK)


def parse_cells(text: str) -> tuple[Cell, ...]:
    """`latency:kafka,reset:client`, each once. Raises `SettingsError`."""
    known = {str(cell): cell for cell in ALL}
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise SettingsError(
            f"--cells {', '.join(wrong) or repr(text)}: write fault:hop, comma-separated; "
            f"faults: {', '.join(NETWORK)}; hops: {', '.join(Hop)}"
        )
    return tuple(known[name] for name in names)


def load_s(requests: int, *, rate: float) -> float:
    """How long so many are asked: at the rate, but never so short that a fault finds no time."""
    return max(_FEWEST_S, requests / rate)


def pulses(fault: Kind, duration_s: float) -> list[Pulse]:
    """In order; each over before the next begins, one at least. What can last does so until the load's end."""
    match fault:
        case Kind.RESET:
            every_s, for_s = _RESET_EVERY_S, 0.0
        case Kind.SLOW_CLOSE:
            every_s, for_s = _SLOW_CLOSE_EVERY_S, 0.0
        case Kind.TIMEOUT:
            every_s, for_s = _SILENT_EVERY_S, _SILENT_S
        case _:
            return [Pulse(_LEAD_S, duration_s - _LEAD_S)]
    count = max(1, int((duration_s - _LEAD_S - for_s) / every_s) + 1)
    return [Pulse(_LEAD_S + number * every_s, for_s) for number in range(count)]
