"""Every message on the wire: WebSocket frames and Kafka records, as one set of Structs.

The same Structs give the JSON form, the MessagePack form and the JSON Schema. Names follow OpenAI's Realtime API.
A field without a default is always on the wire; one with a default is left out while it has that default. Unknown
fields are ignored both ways, so new fields are added with a default.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from shared.errors import ErrorKind

MAX_ID_CHARS: Final = 64
MAX_SEED: Final = 2**63 - 1
# What every JSON and MessagePack reader holds exactly.
MAX_INTEGER: Final = 2**53 - 1
MAX_PREDICTED_MS: Final = 1e9

# `(?!\n)`: Python's `$` would let one newline follow.
Identifier = Annotated[
    str, Meta(min_length=1, max_length=MAX_ID_CHARS, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:\-]*(?!\n)$")
]
Tenant = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*(?!\n)$")]
Text = Annotated[str, Meta(min_length=1, pattern=r"\S")]  # not blank
Milliseconds = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
TopP = Annotated[float, Meta(gt=0.0, le=1.0)]
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
PredictedMs = Annotated[float, Meta(ge=0.0, le=MAX_PREDICTED_MS)]
MaxOutputTokens = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Stop = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=4)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
Traceparent = Annotated[str, Meta(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?!\n)$")]

Status = Literal["completed", "incomplete", "cancelled", "failed"]
Reason = Literal["stop", "max_output_tokens", "deadline", "client", "infeasible", "internal"]
Source = Literal["model", "faq", "busy"]
Bucket = Literal["short", "medium", "long"]


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything below: immutable, by keyword, defaults left off the wire."""


# --- parts of an answer ---------------------------------------------------------------------------------------------


class Usage(Message, frozen=True):
    """Tokens of the whole prompt (system, FAQ entries and history too), those not computed again, and generated."""

    input_tokens: Count = 0
    cached_tokens: Count = 0
    output_tokens: Count = 0


class Timings(Message, frozen=True):
    """Where the time went, in milliseconds. `ttft_ms` and `total_ms` run from the gateway's receipt of the request."""

    admission_ms: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None


class Grounding(Message, frozen=True):
    """A FAQ entry that stood in the prompt, or was itself the answer."""

    id: str
    question: str
    answer: str


class ErrorDetail(Message, frozen=True):
    type: ErrorKind
    code: str
    message: str
    retryable: bool
    param: str | None = None
    retry_after_ms: int | None = None


class Response(Message, frozen=True):
    """An answer, whole. `output_text` is the concatenation of its deltas."""

    id: str
    status: Status
    reason: Reason
    source: Source
    output_text: str
    usage: Usage
    timings: Timings
    model: str | None = None
    error: ErrorDetail | None = None
    grounding: tuple[Grounding, ...] = ()


# --- client → gateway -----------------------------------------------------------------------------------------------


class Resume(Message, frozen=True):
    cursor: str


class ClientInfo(Message, frozen=True):
    name: Annotated[str, Meta(max_length=64)] = ""
    version: Annotated[str, Meta(max_length=64)] = ""


class SessionStart(Message, frozen=True, tag="session.start"):
    token: str | None = None
    session_id: Identifier | None = None
    resume: Resume | None = None
    client: ClientInfo | None = None


class SessionRefresh(Message, frozen=True, tag="session.refresh"):
    token: str


class SessionDelete(Message, frozen=True, tag="session.delete"):
    """Erases the conversation's history."""


class ResponseCreate(Message, frozen=True, tag="response.create"):
    """Ask. `event_id` is the idempotency key within the session; times are relative to the gateway's receipt."""

    event_id: Identifier
    input: Text
    max_output_tokens: MaxOutputTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop = ()
    deadline_ms: Milliseconds | None = None
    first_token_ms: Milliseconds | None = None
    metadata: Metadata = {}
    traceparent: Traceparent | None = None


class ResponseCancel(Message, frozen=True, tag="response.cancel"):
    response_id: Identifier | None = None
    target_event_id: Identifier | None = None


class Pong(Message, frozen=True, tag="pong"):
    pass


ClientMessage = SessionStart | SessionRefresh | SessionDelete | ResponseCreate | ResponseCancel | Pong

# --- gateway → client -----------------------------------------------------------------------------------------------


class Limits(Message, frozen=True):
    max_message_bytes: int
    max_input_tokens: int
    max_output_tokens: int
    max_inflight: int
    messages_per_minute: int
    first_token_ms: int
    deadline_ms: int


class SessionCreated(Message, frozen=True, tag="session.created"):
    session_id: str
    connection_id: str
    recovered: bool
    replayed: int
    limits: Limits
    heartbeat_s: float
    expires_at: int | None = None  # Unix milliseconds


class SessionRefreshed(Message, frozen=True, tag="session.refreshed"):
    expires_at: int  # Unix milliseconds


class SessionDeleted(Message, frozen=True, tag="session.deleted"):
    session_id: str


class SessionClosing(Message, frozen=True, tag="session.closing"):
    reason: str
    reconnect_after_ms: int


class ResponseCreated(Message, frozen=True, tag="response.created"):
    """The answer is assured: Kafka has acknowledged the request (acks=all), or the fallback answers at once."""

    response_id: str
    event_id: str
    bucket: Bucket
    eta_ms: int | None = None
    cursor: str | None = None


class ResponseDelta(Message, frozen=True, tag="response.output_text.delta"):
    """`seq` counts from 0 without gap; `offset` is the number of characters (code points) before this delta."""

    response_id: str
    seq: int
    offset: int
    delta: str
    cursor: str


class ResponseDone(Message, frozen=True, tag="response.done"):
    response: Response
    cursor: str


class ErrorEvent(Message, frozen=True, tag="error"):
    error: ErrorDetail
    event_id: str | None = None


class Ping(Message, frozen=True, tag="ping"):
    pass


ServerMessage = (
    SessionCreated
    | SessionRefreshed
    | SessionDeleted
    | SessionClosing
    | ResponseCreated
    | ResponseDelta
    | ResponseDone
    | ErrorEvent
    | Ping
)

# --- Kafka ----------------------------------------------------------------------------------------------------------


class ChatRequest(Message, frozen=True, tag="chat.request"):
    """A request on `chat.requests*`. Other services must give `id`, `session_id` and `input`; the rest has defaults,
    filled in from settings by whoever reads it first. Times are absolute, Unix milliseconds."""

    id: Identifier
    session_id: Identifier
    input: Text
    tenant: Tenant | None = None
    max_output_tokens: MaxOutputTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop = ()
    created_unix_ms: Count | None = None
    deadline_unix_ms: Count | None = None
    first_token_unix_ms: Count | None = None
    reply_topic: str | None = None
    reply_partition: Count | None = None
    metadata: Metadata = {}
    traceparent: Traceparent | None = None


class ReplyDelta(Message, frozen=True, tag="chat.delta"):
    """Some text of an answer. `attempt` tells one worker's try at a request from another's (it grows)."""

    request_id: str
    session_id: str
    attempt: int
    seq: int
    offset: int
    delta: str


class ReplyDone(Message, frozen=True, tag="chat.done"):
    """An answer's end, with the whole text. The reader keeps the first of a request and drops the rest. A gateway that
    ends one itself writes it too, for the gateway that its client may come back to."""

    request_id: str
    session_id: str
    attempt: int
    status: Status
    reason: Reason
    source: Source
    output_text: str
    usage: Usage
    timings: Timings
    model: str | None = None
    error: ErrorDetail | None = None
    grounding: tuple[Grounding, ...] = ()
    origin: Literal["worker", "gateway"] = "worker"


class Cancel(Message, frozen=True, tag="chat.cancel"):
    """Nobody waits for an answer any more; with `reply_partition`, nobody to whom it goes there."""

    request_id: Identifier
    reply_partition: Count | None = None


class Erase(Message, frozen=True, tag="chat.erase"):
    """A conversation is erased: whatever a worker holds of it in memory is forgotten."""

    tenant: Identifier
    session_id: Identifier


class WorkerReport(Message, frozen=True, tag="chat.worker"):
    """What a worker can still take on; its newest report counts, and a record without a value says that it leaves.

    By bucket served: `first_token_ms`, predicted from the arrival of a request now to its first token, and
    `service_ms`, the machine time of one request. `backlog_ms` is that of the waiting requests which are kept."""

    worker_id: Identifier
    unix_ms: Count
    buckets: tuple[Bucket, ...]
    slots: Count
    running: Count = 0
    waiting: Count = 0
    backlog_ms: PredictedMs = 0.0
    first_token_ms: dict[Bucket, PredictedMs] = {}
    service_ms: dict[Bucket, PredictedMs] = {}


Reply = ReplyDelta | ReplyDone


CLIENT_TYPES: Final = frozenset(
    {"session.start", "session.refresh", "session.delete", "response.create", "response.cancel", "pong"}
)
