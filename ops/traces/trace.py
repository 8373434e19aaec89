"""The load offered to the simulator: requests with their actual lengths, which the scheduler does not know. Pure."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.wire.messages import Bucket

_Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]
_Ms = Annotated[int, Meta(ge=1, le=3_600_000)]


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request.

    `arrival_ms` counts from the trace's start, `first_token_ms` (soft) and `deadline_ms` (hard) from the arrival.
    Requests of one `session` belong to one conversation; a request without one has its own. The first text is shown
    with token number `shown_tokens` of the answer, or with its last. An answer shorter than `max_output_tokens` ends
    with a stop token, which is computed like any other.
    """

    arrival_ms: Annotated[float, Meta(ge=0)]
    bucket: Bucket
    prompt_tokens: _Tokens
    output_tokens: _Tokens
    max_output_tokens: _Tokens
    first_token_ms: _Ms
    deadline_ms: _Ms
    tenant: str = "demo"
    session: str | None = None
    weight: Annotated[float, Meta(gt=0)] = 1.0
    shown_tokens: _Tokens | None = None

    @property
    def num_decodes(self) -> int:
        """Return the number of decode steps for the whole answer. Its first token comes from the prefill."""
        return min(self.output_tokens, self.max_output_tokens - 1)


class Trace(Struct, frozen=True, kw_only=True):
    """A trace. `requests` are ordered by arrival. `load` is the load that was asked for; None for a recorded trace.

    `surges` are the times (start and end, ms) at which more requests arrive.
    """

    name: str
    load: float | None
    seed: int
    requests: tuple[Request, ...]
    surges: tuple[tuple[float, float], ...] = ()

    @property
    def span_ms(self) -> float:
        """Return the time from the start to the last arrival."""
        return self.requests[-1].arrival_ms if self.requests else 0.0
