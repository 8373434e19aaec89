"""Start and end the machines of a pool as its scaler decides, and compute their cost. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise


@dataclass(slots=True, kw_only=True)
class Machine:
    """A worker's machine. It costs from its start, and serves from `serves_ms`. A machine that leaves takes no more
    requests, and costs until its last answer has ended, at `ended_ms`."""

    name: str
    started_ms: float
    serves_ms: float
    leaves_ms: float | None = None
    ended_ms: float | None = None

    def costs_ms(self, now_ms: float) -> float:
        return min(now_ms, self.ended_ms if self.ended_ms is not None else now_ms) - self.started_ms


@dataclass(slots=True, kw_only=True)
class Pool:
    """The machines of one pool, in the order of their start. `changes` are the times and sizes that were wanted."""

    cold_start_ms: float
    machines: list[Machine] = field(default_factory=list)
    gone_ms: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def warm(cls, size: int, cold_start_ms: float) -> "Pool":
        """Return a pool of machines that serve already."""
        pool = cls(cold_start_ms=cold_start_ms, changes=[(0.0, size)])
        pool.machines = [pool._new(0.0, 0.0) for _ in range(size)]
        return pool

    @property
    def kept(self) -> list[Machine]:
        return [each for each in self.machines if each.leaves_ms is None]

    def serving(self, now_ms: float) -> int:
        return sum(each.serves_ms <= now_ms for each in self.kept)

    def resize(self, size: int, now_ms: float) -> tuple[list[Machine], list[Machine]]:
        """Start or end machines until `size` are kept; return those that start and those that leave. As in Kubernetes,
        machines that do not serve yet leave first, then the youngest."""
        kept = self.kept
        if size != len(kept):
            self.changes.append((now_ms, size))
        started = [self._new(now_ms, now_ms + self.cold_start_ms) for _ in range(size - len(kept))]
        self.machines += started
        order = sorted(kept, key=lambda each: (each.serves_ms <= now_ms, -each.started_ms))
        leaving = order[: max(0, len(kept) - size)]
        for each in leaving:
            each.leaves_ms = now_ms
            if each.serves_ms > now_ms:
                self.end(each, now_ms)
        return started, leaving

    def end(self, machine: Machine, now_ms: float) -> None:
        """End a machine that has no open request."""
        machine.ended_ms = now_ms
        self.gone_ms += machine.costs_ms(now_ms)
        self.machines.remove(machine)

    def cost_ms(self, now_ms: float) -> float:
        """Return the machine time that all machines have used up to `now_ms`."""
        return self.gone_ms + sum(each.costs_ms(now_ms) for each in self.machines)

    def _new(self, now_ms: float, serves_ms: float) -> Machine:
        return Machine(name=f"worker-{next(self._numbers)}", started_ms=now_ms, serves_ms=serves_ms)


def num_turns(changes: list[tuple[float, int]]) -> int:
    """Return how often the size changed its direction: a shrink after a growth, or a growth after a shrink."""
    grew = [after > before for (_, before), (_, after) in pairwise(changes) if after != before]
    return sum(one != other for one, other in pairwise(grew))
