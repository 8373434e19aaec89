"""The observations of a running system: its processes' metrics and the results of probes. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from ops.operate.diagnose.pages import Window


class Role(StrEnum):
    GATEWAY = "gateway"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Process:
    """A process. `seen` are its metrics, or the reason why there are none."""

    role: Role
    url: str
    seen: Window | str


@dataclass(frozen=True, slots=True)
class Answered:
    """The median time of a probe, in seconds."""

    seconds: float


Probe = Answered | str | None
"""None: not probed. Text: why there was no answer."""


@dataclass(frozen=True)
class System:
    """The observations.

    Attributes:
        socket: ping on the customers' WebSocket
        broker: query of the topics
        redis: PING
        lag: uncommitted records of each bucket, in each lane with topics, or why the broker did not return them; None
            if not queried
    """

    processes: Sequence[Process]
    socket: Probe = None
    broker: Probe = None
    redis: Probe = None
    lag: Mapping[str, int] | str | None = None

    def windows(self, role: Role) -> list[tuple[str, Window]]:
        """Return the windows of the processes that answered, by address."""
        return [
            (process.url, process.seen)
            for process in self.processes
            if process.role is role and isinstance(process.seen, Window)
        ]

    @cached_property
    def gateways(self) -> list[tuple[str, Window]]:
        return self.windows(Role.GATEWAY)

    @cached_property
    def workers(self) -> list[tuple[str, Window]]:
        return self.windows(Role.WORKER)

    @cached_property
    def all_windows(self) -> list[tuple[str, Window]]:
        return [*self.gateways, *self.workers]
