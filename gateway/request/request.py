"""A request as its gateway accepted it. Pure."""

from dataclasses import dataclass

from gateway.request.cursor import Place
from gateway.request.trace_times import RequestTrace
from shared.wire.deadline import Deadline
from shared.wire.messages import Consent, ResponseCreate
from shared.wire.session_key import SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, with all that is fixed once a message has become one.

    If another gateway accepted it, `input` is empty (`Adoption.question`), `asked`, the client's message, is None, and
    so is `trace` if that gateway recorded none. Its times on the wire are `clock_ms` ahead of this process's.
    `generation` is the conversation's; without `generation_known` Redis was away, and the time of receipt takes its
    place. `log` is where in the reply topic its replies begin; None if that is not known."""

    response_id: str
    event_id: str
    session: SessionKey
    input: str
    received_unix_ms: float
    deadline: Deadline
    clock_ms: int = 0
    generation: int = 0
    generation_known: bool = True
    consent: Consent | None = None
    log: Place | None = None
    trace: RequestTrace | None = None
    asked: ResponseCreate | None = None

    @property
    def asked_unix_ms(self) -> int:
        """Return the time of receipt on the wire: in its record, its cursor and its cancel the same."""
        return int(self.received_unix_ms + self.clock_ms)
