"""The observations of a running system: its processes' numbers, and what a few questions of our own took. Pure."""

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
    """`seen`: its numbers, or why there are none."""

    role: Role
    url: str
    seen: Window | str


@dataclass(frozen=True, slots=True)
class Answered:
    """The times that a question of ours took at the median, in seconds."""

    seconds: float


Probe = Answered | str | None
"""None: not asked. Text: why there was no answer."""


@dataclass(frozen=True)
class System:
    """`socket`: a ping on the customers' way to the gateway. `broker`: its topics. `redis`: a PING. `lag`: records of
    each bucket, of each lane with topics, that no worker has committed, or why the broker did not say; None: not
    asked."""

    processes: Sequence[Process]
    socket: Probe = None
    broker: Probe = None
    redis: Probe = None
    lag: Mapping[str, int] | str | None = None

    def windows(self, role: Role) -> list[tuple[str, Window]]:
        """Return the windows of the processes that answer, by their addresses."""
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
