"""The end of an answer, in the same form in a worker's record and in the client's frame."""

from functools import cache
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct

from shared.errors import ErrorKind
from shared.wire.fields import Count
from shared.wire.lanes import Lane

Status = Literal["completed", "incomplete", "cancelled", "failed"]
Reason = Literal["stop", "max_output_tokens", "deadline", "client", "person", "infeasible", "internal"]
# Who wrote an answer: "mixed" is the model's text with some of an FAQ entry's, "quote" an FAQ entry under its own
# question, without a claim that it answers the customer's, "clarify" asks which of the entries in `grounding` is meant,
# "courtesy" is a fixed line that returns a greeting, "unsure" says that nothing is known.
Source = Literal["model", "mixed", "faq", "quote", "clarify", "courtesy", "unsure", "busy", "handoff"]
Origin = Literal["worker", "gateway"]
BY_MODEL: Final[frozenset[Source]] = frozenset({"model", "mixed"})
CLAIM_NOTHING: Final[frozenset[Source]] = frozenset({"quote", "unsure"})
"""No answer to the question is claimed."""
OutcomeT = TypeVar("OutcomeT", bound="Outcome")
MessageT = TypeVar("MessageT", bound="Message")


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every message: immutable, keyword-only, defaults are not sent."""

    def within(self, message: type[MessageT], **fields: Any) -> MessageT:
        """Return a message of another type with the values of the fields that both types have. `fields` overrides
        them."""
        shared = _shared_fields(type(self), message)
        return message(**{name: getattr(self, name) for name in shared} | fields)


@cache
def _shared_fields(one: type[Struct], other: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in one.__struct_fields__ if name in other.__struct_fields__)


class Usage(Message, frozen=True):
    """Tokens of the whole prompt (with system text, FAQ entries and history), those taken from the cache, and those
    generated."""

    input_tokens: Count = 0
    cached_tokens: Count = 0
    output_tokens: Count = 0


class Timings(Message, frozen=True):
    """The times of an answer in milliseconds. `ttft_ms` and `total_ms` start at the gateway's receipt of the
    request."""

    admission_ms: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None


class WorkerTimes(Message, frozen=True):
    """The worker's part of an answer's trace, in Unix milliseconds by its own clock.

    `arrived`: read from Kafka. `turns_missing`: the history did not return all turns in time. `kv_asked` to `kv_found`:
    lookup of cached KV. `ready`: can be computed. `started`: first step. `prefilled`: end of each chunk of the prompt.
    """

    worker_id: str
    arrived_unix_ms: float
    ready_unix_ms: float
    ended_unix_ms: float
    turns_missing: bool = False
    kv_asked_unix_ms: float | None = None
    kv_found_unix_ms: float | None = None
    started_unix_ms: float | None = None
    prefilled_unix_ms: tuple[float, ...] = ()
    first_token_unix_ms: float | None = None


class Grounding(Message, frozen=True):
    """An FAQ entry that was in the prompt, was itself the answer, or is one of those that a `clarify` offers. `url` is
    the page where customers read more.
    """

    id: str
    question: str
    answer: str
    url: str | None = None


class Replaced(Message, frozen=True):
    """A part of an answer, in characters (code points), that replaces a claim of the model without a source: text of
    the FAQ entry `id`, or nothing if `length` is 0.
    """

    offset: Count
    length: Count
    id: str | None = None


class ErrorDetail(Message, frozen=True):
    type: ErrorKind
    code: str
    message: str
    retryable: bool
    param: str | None = None
    retry_after_ms: int | None = None


class Outcome(Message, frozen=True, kw_only=True):
    """The end of an answer, with the whole of it. `output_text` is the concatenation of its deltas. `model` and
    `revision` name the version that wrote it, if a model did; `lane` is its worker's lane unless that is the
    champion's. `faq_version` is the version of an edge's FAQ if its entries are the grounding.
    """

    status: Status
    reason: Reason
    source: Source
    output_text: str
    usage: Usage
    timings: Timings
    model: str | None = None
    revision: str | None = None
    lane: Lane | None = None
    error: ErrorDetail | None = None
    grounding: tuple[Grounding, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    faq_version: Count | None = None

    @classmethod
    def uncounted(
        cls,
        status: Status,
        reason: Reason,
        source: Source = "model",
        *,
        output_text: str = "",
        error: ErrorDetail | None = None,
        grounding: tuple[Grounding, ...] = (),
        faq_version: int | None = None,
    ) -> "Outcome":
        """Return the outcome of an answer without token counts and times."""
        return Outcome(
            status=status,
            reason=reason,
            source=source,
            output_text=output_text,
            usage=Usage(),
            timings=Timings(),
            error=error,
            grounding=grounding,
            faq_version=faq_version,
        )


class Response(Outcome, frozen=True):
    """An answer as its client gets it."""

    id: str
