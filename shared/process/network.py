"""Figures of the machine's network devices: read from /proc/net/dev and /sys/class/net as Linux describes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DEVICES: Final = Path("/proc/net/dev")
_CLASS: Final = Path("/sys/class/net")
_LOOPBACK: Final = "lo"
_SENT_COLUMN: Final = 8
_BYTES_PER_MBIT: Final = 125_000


@dataclass(frozen=True, slots=True)
class Network:
    """Bytes since boot over all devices but loopback, and what these carry a second each way; 0 where they do not
    say."""

    received_bytes: int
    sent_bytes: int
    speed_bytes: int


def parse_devices(text: str) -> dict[str, tuple[int, int]]:
    """Return the received and sent bytes of each device in the text of /proc/net/dev. Raises `ValueError`."""
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        columns = numbers.split()
        if len(columns) <= _SENT_COLUMN:
            raise ValueError(f"/proc/net/dev has {line!r}")
        found[name.strip()] = int(columns[0]), int(columns[_SENT_COLUMN])
    return found


def network_of(devices: Mapping[str, tuple[int, int]], mbit: Mapping[str, int]) -> Network:
    """Return the figures of the devices that are hardware, by `mbit`'s names; where none is, as in a container, of all
    but loopback."""
    ours = [name for name in devices if name in mbit] or [name for name in devices if name != _LOOPBACK]
    return Network(
        received_bytes=sum(devices[name][0] for name in ours),
        sent_bytes=sum(devices[name][1] for name in ours),
        speed_bytes=sum(max(0, mbit.get(name, 0)) for name in ours) * _BYTES_PER_MBIT,
    )


def read_network() -> Network | None:
    """Return the machine's figures; None on a system that has no such files, or others by that name."""
    try:
        devices = parse_devices(_DEVICES.read_text())
    except (OSError, ValueError):
        return None
    hardware = [name for name in devices if (_CLASS / name / "device").exists()]
    return network_of(devices, {name: _mbit(name) for name in hardware})


def _mbit(name: str) -> int:
    """Return a device's speed; 0 where it does not say, as many virtual ones, or is down."""
    try:
        return int((_CLASS / name / "speed").read_text())
    except (OSError, ValueError):
        return 0
