"""The interface of every way to size a pool: its input and output, the same for ours and the simulator's others.
Pure."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a pool at a moment. Times in ms; work in machine seconds a second.

    Attributes:
        asked: the recently requested work that is this pool's to answer, before admission; None if no gateway has
            reported or `silent_pool` is set, which is not zero.
        silent_pool: a cheaper pool whose autoscaler does not report what it leaves to this one; else empty.
        served: the part of the lane's work that its found workers are given; None if it is `asked`.
        expected: the work that the forecast's upper quantile predicts for when a worker started now would serve; None
            without a forecast.
        found: the workers that report; None if that is unknown.
        loading: the started workers that do not serve yet.
        busy: the share of the found workers' time that was spent computing.
        lag: records that no worker has committed.
        waiting: requests that wait at the workers.
        whole: False if a gateway or worker that had reported is silent, so that `asked` is a lower bound.
        judged: requests with a deadline that ended in the last minute.
        in_time: those of them that met it.
    """

    now_unix_ms: float
    asked: float | None
    silent_pool: str = ""
    served: float | None = None
    expected: float | None = None
    found: int | None
    loading: int = 0
    busy: float = 0.0
    lag: int = 0
    waiting: int = 0
    whole: bool = True
    judged: int = 0
    in_time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The number of workers there should be, and why: one sentence with its numbers."""

    workers: int
    reason: str


class Scaler(Protocol):
    """Decides the size of one pool. It keeps what it remembers of earlier moments itself."""

    name: str
    every_ms: float
    """How often it looks."""

    def decide(self, seen: Seen) -> Wanted:
        """Return the wanted size; the one before if the evidence allows no decision."""
