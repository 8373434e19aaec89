"""Export traces to a store on a separate thread: no caller waits for it, and nothing fails without it.

The thread makes spans of the facts that it gets. Its queue is bounded: while the store is away or slow, the rest is
dropped and counted. An outage is logged once, and once its end.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from shared.process.extras import install_command
from shared.process.threads import Event, Thread, make_event, make_thread
from shared.settings.telemetry import TracingSettings
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.tracing.spans import Trace

MOST_WAITING: Final = 4_096
_BATCH: Final = 16
_PERIOD_S: Final = 0.5
_STOP_S: Final = 5.0
_SWITCH_INTERVAL_S: Final = 0.0005

Facts = TypeVar("Facts")

log = get_logger()


Send = Callable[[Sequence[Trace]], bool]


def open_exporter(settings: TracingSettings, spans_of: Callable[[Facts], Trace]) -> "TraceExporter[Facts] | None":
    """Return the exporter, started. None where no store is named, and where the packages that speak to one are missing:
    that is said, and requests are served."""
    if not settings.endpoint:
        return None
    try:
        from shared.tracing.otlp import OtlpSender
    except ImportError as error:
        log.warning("tracing_off", missing=error.name, action=f"type: {install_command('tracing')}")
        return None
    exporter = TraceExporter(spans_of=spans_of, send=OtlpSender(settings), endpoint=settings.endpoint)
    # Making spans is work in Python: whoever waits for the interpreter meanwhile gets it sooner than after its 5 ms.
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    exporter.start()
    return exporter


@dataclass(slots=True, kw_only=True)
class TraceExporter(Generic[Facts]):
    """`spans_of` and `send` are called on the thread; `send` says whether the store took them. `stop` sends what waits,
    for a while."""

    spans_of: Callable[[Facts], Trace]
    send: Send
    endpoint: str
    _facts: deque[Facts] = field(default_factory=deque)
    _stopping: Event = field(default_factory=make_event)
    _store: Availability = field(default_factory=lambda: Availability("trace store"))
    _thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = make_thread(self._run, "traces")

    def start(self) -> None:
        self._thread.start()

    def put(self, facts: Facts) -> None:
        """Put a trace into the queue, from any thread; never wait."""
        if len(self._facts) >= MOST_WAITING:
            metrics.traces_dropped.labels("full").inc()
            return
        self._facts.append(facts)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            self.send_all()
        self.send_all()

    def send_all(self) -> None:
        """Send all that waits, in batches."""
        while self._facts:
            batch = [self._facts.popleft() for _ in range(min(_BATCH, len(self._facts)))]
            try:
                taken = self.send([self.spans_of(facts) for facts in batch])
            except Exception:  # a fault of our own ends no more than these traces
                metrics.traces_dropped.labels("internal").inc(len(batch))
                log.exception("traces_failed")
                continue
            if taken:
                self._store.up()
            else:
                self._refused(len(batch))

    def _refused(self, num_traces: int) -> None:
        if self._stopping.is_set():  # the others would be no more welcome
            num_traces += len(self._facts)
            self._facts.clear()
        metrics.traces_dropped.labels("store").inc(num_traces)
        self._store.down(f"{self.endpoint} cannot be reached or takes no traces", action="requests are served")
