"""Export traces on a separate thread: callers never wait, and no request fails if the trace store does.

The thread makes spans from recorded facts. Its queue is bounded: while the store is unavailable or slow, further traces
are dropped and counted. The log has one line for the beginning and one for the end of an outage.
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
    """Return a started exporter.

    Returns:
        None if no endpoint is set, or if the packages for tracing are missing; this is logged, and requests are served.
    """
    if not settings.endpoint:
        return None
    try:
        from shared.tracing.otlp import OtlpSender
    except ImportError as error:
        log.warning("tracing_off", missing=error.name, action=f"type: {install_command('tracing')}")
        return None
    exporter = TraceExporter(spans_of=spans_of, send=OtlpSender(settings), endpoint=settings.endpoint)
    # Making spans is Python code: with a shorter switch interval other threads get the interpreter before the default 5
    # ms.
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    exporter.start()
    return exporter


@dataclass(slots=True, kw_only=True)
class TraceExporter(Generic[Facts]):
    """Exports traces on its own thread. `stop` sends the queued ones, up to a limit.

    Attributes:
        spans_of: makes spans from facts, on the thread.
        send: sends traces, on the thread; returns whether the store accepted them.
    """

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
        """Queue a trace, from any thread, without waiting."""
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
        """Send all queued traces in batches."""
        while self._facts:
            batch = [self._facts.popleft() for _ in range(min(_BATCH, len(self._facts)))]
            try:
                taken = self.send([self.spans_of(facts) for facts in batch])
            except Exception:  # an internal fault loses only these traces
                metrics.traces_dropped.labels("internal").inc(len(batch))
                log.exception("traces_failed")
                continue
            if taken:
                self._store.mark_up()
            else:
                self._refused(len(batch))

    def _refused(self, num_traces: int) -> None:
        if self._stopping.is_set():  # the others would fail too
            num_traces += len(self._facts)
            self._facts.clear()
        metrics.traces_dropped.labels("store").inc(num_traces)
        self._store.mark_down(f"{self.endpoint} cannot be reached or takes no traces", action="requests are served")
