"""`python -m tests.bench.gateway.switched gateway|workers`: the process as it is, whose metrics and traces are turned
off and on again while it runs.

Only for measuring what they cost: with and without is one process, so that nothing else is different. The signal
SIGRTMIN + n asks for `MODES[n]`. While metrics are off `/metrics` stands still. What is left of them are two wake-ups
a second, a reading of /proc in ten seconds, and the note of each collector's pause.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from shared.telemetry.metric_kinds import Counter, Gauge, Histogram

Mode = Literal["neither", "metrics", "metrics and traces"]
MODES: Final[tuple[Mode, ...]] = ("neither", "metrics", "metrics and traces")

_COUNTING: Final = ("inc", "dec", "set", "observe")
_INHERITED: Final = object()


def signal_of(mode: Mode) -> int:
    return signal.SIGRTMIN + MODES.index(mode)


class Switch:
    """Replaces methods of classes, and puts them back. `tracer` is the gateway's class: a worker's has nothing to turn
    off, it tells its times where the gateway asks it to."""

    def __init__(self, tracer: type[Any] | None) -> None:
        self._tracer = tracer
        self._metrics = _Replaced()
        self._traces = _Replaced()

    def to(self, mode: Mode) -> None:
        self._metrics.put_back()
        self._traces.put_back()
        if mode == "neither":
            _stop_counting(self._metrics)
        if mode != "metrics and traces" and self._tracer is not None:
            _stop_tracing(self._traces, self._tracer)

    def listen(self) -> None:
        for mode in MODES:
            signal.signal(signal_of(mode), self._signalled)

    def _signalled(self, number: int, _frame: object) -> None:
        self.to(MODES[number - signal.SIGRTMIN])


class _Replaced:
    def __init__(self) -> None:
        self._before: list[tuple[type, str, object]] = []

    def replace(self, owner: type, name: str, by: object) -> None:
        self._before.append((owner, name, vars(owner).get(name, _INHERITED)))
        setattr(owner, name, by)

    def put_back(self) -> None:
        while self._before:
            owner, name, before = self._before.pop()
            if before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _stop_counting(replaced: _Replaced) -> None:
    """Every metric of this process takes what it is told and forgets it."""

    def forget(self: Any, *_: Any, **__: Any) -> None:
        """Nothing is kept."""

    def itself(self: Any, *_: Any, **__: Any) -> Any:
        return self

    for kind in (Counter, Gauge, Histogram):
        for name in _COUNTING:
            if hasattr(kind, name):
                replaced.replace(kind, name, forget)
        replaced.replace(kind, "labels", itself)
    replaced.replace(Histogram, "time", _timed)


@contextmanager
def _timed(_: Histogram) -> Iterator[None]:
    yield


def _stop_tracing(replaced: _Replaced, tracer: type[Any]) -> None:
    """It is as one without a store."""
    off = tracer()
    for name in ("begin", "heard", "ended"):
        original = getattr(tracer, name)
        replaced.replace(tracer, name, lambda _self, *given, original=original: original(off, *given))


def main() -> int:
    program: Callable[[], int]
    tracer: type[Any] | None = None
    if sys.argv[1:] == ["gateway"]:
        from gateway.__main__ import main as program
        from gateway.telemetry.tracer import Tracer

        tracer = Tracer
    elif sys.argv[1:] == ["workers"]:
        from workers.__main__ import main as program
    else:
        return 2
    Switch(tracer).listen()
    return program()


if __name__ == "__main__":
    sys.exit(main())
