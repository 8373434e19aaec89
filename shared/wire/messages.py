"""Every message on the wire: WebSocket frames and Kafka records, as one set of Structs.

The same Structs give the JSON form, the MessagePack form and the JSON Schema. Names follow OpenAI's Realtime API.
A field without a default is always on the wire; one with a default is left out while it has that default. Unknown
fields are ignored both ways, so new fields are added with a default.
"""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, field
from msgspec.structs import force_setattr

from shared.wire.fields import (
    MAX_TURNS,
    Count,
    Identifier,
    MaxOutputTokens,
    Metadata,
    Milliseconds,
    PredictedMs,
    ReplyPartition,
    RequestIds,
    Revision,
    Seed,
    Stop,
    Temperature,
    Tenant,
    Text,
    TopP,
    Traceparent,
    UnixMs,
    nearest_language,
)
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.outcome import ErrorDetail, Message, Outcome, Response, WorkerTimes
from shared.wire.shadow import Comparison, LiveAnswer
from shared.wire.step_law import StepLaw

Bucket = Literal["short", "medium", "long"]
HandoffReason = Literal["requested", "text", "fallbacks"]
Rating = Literal["up", "down"]
RatingReason = Literal["wrong", "incomplete", "unclear", "off_topic", "slow", "other"]
# What the FAQ, the fallback and the widget speak.
Language = Annotated[Literal["en", "zh"], Meta(extra={"reads": nearest_language})]


# --- client → gateway -----------------------------------------------------------------------------------------------


class Resume(Message, frozen=True):
    """`age_ms`: how long ago the cursor came, by the client's own count; deadlines go by it, whatever clocks say."""

    cursor: str
    age_ms: Count | None = None


class ClientInfo(Message, frozen=True):
    name: Annotated[str, Meta(max_length=64)] = ""
    version: Annotated[str, Meta(max_length=64)] = ""


class Consent(Message, frozen=True):
    """The customer's consent to more than being answered; nothing, unless it stands here. `training`: that the words
    of this session's requests may be recorded, and models be calibrated on them."""

    training: bool = False


class Said(Message, frozen=True):
    """A turn of the conversation before a question, as the asker tells it. Either may be empty."""

    user: str
    assistant: str


Turns = Annotated[tuple[Said, ...], Meta(max_length=MAX_TURNS)]


class SessionStart(Message, frozen=True, tag="session.start"):
    token: str | None = None
    session_id: Identifier | None = None
    resume: Resume | None = None
    client: ClientInfo | None = None
    consent: Consent | None = None


class SessionRefresh(Message, frozen=True, tag="session.refresh"):
    token: str


class SessionDelete(Message, frozen=True, tag="session.delete"):
    """Erases the conversation's history."""


class ResponseCreate(Message, frozen=True, tag="response.create"):
    """Ask. `event_id` is the idempotency key within the session; times are relative to the gateway's receipt. `turns`,
    even none, stand in the prompt instead of what is remembered of the conversation; `instructions`, which is a right
    of the token, instead of the shop's own."""

    event_id: Identifier
    input: Text
    max_output_tokens: MaxOutputTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop = ()
    deadline_ms: Milliseconds | None = None
    first_token_ms: Milliseconds | None = None
    metadata: Metadata = field(default_factory=dict)
    traceparent: Traceparent | None = None
    turns: Turns | None = None
    instructions: Text | None = None


class ResponseCancel(Message, frozen=True, tag="response.cancel"):
    response_id: Identifier | None = None
    target_event_id: Identifier | None = None


class HandoffRequest(Message, frozen=True, tag="handoff.request"):
    """The customer asks for a person. `event_id` stands in what is said of it; `language` is the one to answer in."""

    event_id: Identifier | None = None
    language: Language = "en"


class _Rated(Message, frozen=True):
    response_id: Identifier
    event_id: Identifier | None = None
    rating: Rating | None = None
    resolved: bool | None = None
    reason: RatingReason | None = None


class Feedback(_Rated, frozen=True, tag="feedback"):
    """The customer's opinion of an answer: a rating, whether it settled the matter, or both. The last one counts."""


class Pong(Message, frozen=True, tag="pong"):
    pass


ClientMessage = (
    SessionStart | SessionRefresh | SessionDelete | ResponseCreate | ResponseCancel | HandoffRequest | Feedback | Pong
)

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
    handoff: bool = False  # a person can be asked for


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


class HandoffCreated(Message, frozen=True, tag="handoff.created"):
    """A person has been asked to take over: Kafka has acknowledged it (acks=all). Told once more to a client that comes
    back, and to one that asks while it is open, with the same id."""

    handoff_id: str
    reason: HandoffReason
    created_at: int  # Unix milliseconds
    event_id: str | None = None


class FeedbackRecorded(_Rated, frozen=True, tag="feedback.recorded"):
    """The feedback of an answer that counts from now on."""


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
    | HandoffCreated
    | FeedbackRecorded
    | ErrorEvent
    | Ping
)

# --- Kafka ----------------------------------------------------------------------------------------------------------


class ChatRequest(Message, frozen=True, tag="chat.request"):
    """A request on `chat.requests*`. Other services must give `id`, `session_id` and `input`; the rest has defaults,
    filled in from settings by whoever reads it first. Times are absolute, Unix milliseconds. `generation` is the
    conversation's when it was asked, as gateways count them (`shared.conversation.erasures`); without it
    `created_unix_ms` tells. `concurrent` are the conversation's other questions that had no end when this one was
    asked: their turns do not stand in its prompt, whenever it is computed.
    `turns` and `instructions` as in `ResponseCreate`. `revision` names the version that the
    registry's state of `epoch` had it served by; who has not got that one serves it by its own, and says so.
    `answered` stands in a request of the shadow lane: nobody reads its answer, which is compared with that one."""

    id: Identifier
    session_id: Identifier
    input: Text
    tenant: Tenant | None = None
    max_output_tokens: MaxOutputTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop = ()
    created_unix_ms: UnixMs | None = None
    deadline_unix_ms: UnixMs | None = None
    first_token_unix_ms: UnixMs | None = None
    reply_topic: str | None = None
    reply_partition: ReplyPartition | None = None
    metadata: Metadata = field(default_factory=dict)
    traceparent: Traceparent | None = None
    consent: Consent | None = None
    generation: Count | None = None
    turns: Turns | None = None
    instructions: Text | None = None
    revision: Revision | None = None
    epoch: Count | None = None
    answered: LiveAnswer | None = None
    concurrent: RequestIds = ()


class ReplyDelta(Message, frozen=True, tag="chat.delta"):
    """Some text of an answer. `attempt` tells one worker's try at a request from another's (it grows). `revision` is
    that of the version which writes it: no other version continues it."""

    request_id: str
    session_id: str
    attempt: int
    seq: int
    offset: int
    delta: str
    revision: str = ""


class ReplyDone(Outcome, frozen=True, tag="chat.done"):
    """An answer's end, as Kafka has it. The reader keeps the first of a request and drops the rest. A gateway that
    ends one itself writes it too, for the gateway that its client may come back to. `times` where the request's
    `traceparent` says that its trace is recorded."""

    request_id: str
    session_id: str
    attempt: int
    origin: Literal["worker", "gateway"] = "worker"
    times: WorkerTimes | None = None


class Cancel(Message, frozen=True, tag="chat.cancel"):
    """A notice that nobody waits for an answer any more; with `reply_partition`, nobody to whom it goes there; with
    `created_unix_ms`, nobody who asked for it by that request: whoever asks again under the same id does."""

    request_id: Identifier
    reply_partition: Count | None = None
    created_unix_ms: UnixMs | None = None


class Adopt(Message, frozen=True, tag="chat.adopt"):
    """An answer's client has come to the gateway of `reply_partition`: it is told there too, from its beginning.
    `created_unix_ms` is that of its request."""

    request_id: Identifier
    reply_partition: Count
    created_unix_ms: Count


class Forgotten(Message, frozen=True, tag="chat.forgotten"):
    """Nothing that was learned or recorded from a conversation before `unix_ms` may be kept: it was erased, or its
    customer withdrew the consent to training. `person` is the conversation's digest (`SessionKey.digest`)."""

    person: Identifier
    unix_ms: UnixMs


class Erase(Message, frozen=True, tag="chat.erase"):
    """A conversation is erased, and is in this generation from now on (`shared.conversation.erasures`): whatever
    workers and gateways hold of an earlier one is forgotten."""

    tenant: Identifier
    session_id: Identifier
    generation: Count


class Refusal(Message, frozen=True):
    """Why a worker has not loaded a version, by the registry's state of that epoch."""

    epoch: Count
    reason: str


class PricedMessage(Message, frozen=True, kw_only=True):
    """A record with `service_ms`, the machine time of one request by bucket in ms. A bucket of which nothing is
    measured is left out: a 0, as a worker without an answer has it, is dropped when a record is made or decoded."""

    service_ms: dict[Bucket, PredictedMs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "service_ms", {bucket: ms for bucket, ms in self.service_ms.items() if ms > 0.0})


class WorkerReport(PricedMessage, frozen=True, tag="chat.worker"):
    """A worker's report of what it can still take on; its newest report counts, and a record without a value says that
    it leaves.

    `partitions` are those that it reads of each bucket's topic; none while its group shares them out anew. By bucket
    served: `first_token_ms`, predicted from the arrival of a request now to the first text that is shown of it, and
    `service_ms`. `backlog_ms` is that of the waiting requests which are kept.
    `cold_ms` is how much later the first text comes in a conversation of which the worker keeps nothing. It serves the
    requests of a `lane`, by the first of its `revisions`, unless they name another of them. `refused` are versions that
    it was to load, and has not. `pool` is the pool that an autoscaler sizes, `host` its machine or pod: the id may be
    too short for it. `law` says what its steps take; None of an engine that it does not time."""

    worker_id: Identifier
    unix_ms: Count
    buckets: tuple[Bucket, ...]
    slots: Count
    running: Count = 0
    waiting: Count = 0
    backlog_ms: PredictedMs = 0.0
    first_token_ms: dict[Bucket, PredictedMs] = field(default_factory=dict)
    cold_ms: PredictedMs = 0.0
    partitions: dict[Bucket, tuple[Count, ...]] = field(default_factory=dict)
    lane: Lane = CHAMPION
    revisions: tuple[Revision, ...] = ()
    refused: dict[Revision, Refusal] = field(default_factory=dict)
    pool: str = ""
    host: str = ""
    law: StepLaw | None = None


class Observation(Message, frozen=True, tag="chat.observation"):
    """The end of an answer of a rollout, as its gateway saw it: evidence for or against a version. `conversation` is a
    digest of tenant and session; `moved` says whether its answer before this one came from another lane, None if the
    gateway does not know.

    `revision` is the version that was asked, `answered_by` the one whose model wrote the answer; empty where no model
    did. `censored`: another version's lane answered in time, which is evidence for neither version. `ttft_ms` is None
    where the asked version showed no text. `cancelled` (its customer stopped it after its first text) and `handed_over`
    (its customer asked for a person) have no deadline to meet: the other outcomes are False then. `rating` comes later,
    in an observation without outcomes. `compared` is in that of a shadow's worker, whose answer nobody saw."""

    response_id: str
    conversation: str
    lane: Lane
    revision: str
    epoch: Count
    unix_ms: Count
    bucket: Bucket
    language: str = ""
    tenant: str = ""
    moved: bool | None = None
    failed: bool = False
    missed: bool = False
    unsure: bool = False
    ttft_ms: float | None = None
    answered_by: str = ""
    censored: bool = False
    cancelled: bool = False
    handed_over: bool = False
    rating: Rating | None = None
    compared: Comparison | None = None


Reply = ReplyDelta | ReplyDone
# What is said of a request after it was asked.
Notice = Cancel | Adopt
CLIENT_TYPES: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(ClientMessage))
