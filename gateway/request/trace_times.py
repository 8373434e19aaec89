"""The times noted of a request for its trace while it runs. Pure."""

from dataclasses import dataclass

from shared.tracing.context import TraceContext
from shared.tracing.worker import WorkerHalf

# The gateway's span that the workers' spans are linked to (`SpanTree.add`).
SEND_SPAN = 1


@dataclass(frozen=True, slots=True)
class Adopted:
    """The context of the gateway that began the trace, and when this one took the answer over."""

    begun: TraceContext
    unix_ms: float


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """The times of one request. `traceparent` goes with it to the workers. `sent`: handed to Kafka; `acked`:
    acknowledged; `last_text`: the last text for the client; `heard`: a worker's end arrived, with its times in
    `worker`. The request of an `adopted` answer was sent by another gateway."""

    context: TraceContext
    traceparent: str = ""
    recorded: bool = False
    adopted: Adopted | None = None
    sent_unix_ms: float | None = None
    acked_unix_ms: float | None = None
    last_text_unix_ms: float | None = None
    heard_unix_ms: float | None = None
    worker: WorkerHalf | None = None

    @property
    def begun(self) -> TraceContext:
        """Return where the trace began: here, or at the gateway that the answer was adopted from."""
        return self.context if self.adopted is None else self.adopted.begun

    @property
    def send_id(self) -> int:
        """Return the id of the send span, which the workers' spans are linked to."""
        return self.begun.child_id(SEND_SPAN)

    @property
    def packed(self) -> bytes | None:
        """Return the context by which another gateway continues the trace; None where none is recorded."""
        return self.begun.packed() if self.recorded else None
