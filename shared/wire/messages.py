"""Every message on the wire, WebSocket frames and Kafka records, as one set of Structs.

The same Structs define the JSON form, the MessagePack form and the JSON Schema. Names follow OpenAI's Realtime API. A
field without a default is always on the wire; one with a default is omitted while it has that default. Unknown fields
are ignored in both directions, so new fields are added with a default.
"""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, field

from shared.wire.fields import (
    MAX_TURNS,
    Count,
    Elapsed,
    Identifier,
    Label,
    MaxOutputTokens,
    Metadata,
    Milliseconds,
    Parts,
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
from shared.wire.outcome import ErrorDetail, Message, Origin, Outcome, Response, WorkerTimes
from shared.wire.shadow import LiveAnswer

Bucket = Literal["short", "medium", "long"]
HandoffReason = Literal["requested", "text", "fallbacks"]
Rating = Literal["up", "down"]
RatingReason = Literal["wrong", "incomplete", "unclear", "off_topic", "slow", "other"]
# The languages of the FAQ, the fallback and the widget.
Language = Annotated[Literal["en", "zh"], Meta(extra={"reads": nearest_language})]
# Who answers: the model until a person has time, a person, the model again, the model since the request was closed.
TalkState = Literal["waiting", "taken", "bot", "resolved"]


# --- client → gateway -----------------------------------------------------------------------------------------------


class Resume(Message, frozen=True):
    """Resume a session. `age_ms`: time since the client received the cursor, by its own clock; deadlines are
    corrected by it."""

    cursor: str
    age_ms: Elapsed | None = None


class ClientInfo(Message, frozen=True):
    name: Label = ""
    version: Label = ""


class Consent(Message, frozen=True):
    """The customer's consent beyond being answered. `training`: the texts of this session may be recorded, and models
    may be calibrated with them.
    """

    training: bool = False


class Said(Message, frozen=True):
    """An earlier turn of the conversation, as supplied by the client. Either text may be empty."""

    user: Parts
    assistant: Parts


Turns = Annotated[tuple[Said, ...], Meta(max_length=MAX_TURNS)]


class SessionStart(Message, frozen=True, tag="session.start"):
    """Open or continue a session. `talk`: the client shows a person's messages, and has those up to this `n` (0: none).
    Without it no person can take the conversation.
    """

    token: str | None = None
    session_id: Identifier | None = None
    resume: Resume | None = None
    client: ClientInfo | None = None
    consent: Consent | None = None
    talk: Count | None = None


class SessionRefresh(Message, frozen=True, tag="session.refresh"):
    token: str


class SessionDelete(Message, frozen=True, tag="session.delete"):
    """Erases the conversation's history."""


class ResponseCreate(Message, frozen=True, tag="response.create"):
    """Ask a question. `event_id` is the idempotency key within the session; times are relative to the gateway's
    receipt. `turns`, even an empty list, replaces the conversation's history in the prompt; `instructions`, for which
    the token needs a right, replaces the shop's own.
    """

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
    """The customer asks for a person. The response repeats `event_id`; `language` is the language of the answer."""

    event_id: Identifier | None = None
    language: Language = "en"


class _Rated(Message, frozen=True):
    response_id: Identifier
    event_id: Identifier | None = None
    rating: Rating | None = None
    resolved: bool | None = None
    reason: RatingReason | None = None


class Feedback(_Rated, frozen=True, tag="feedback"):
    """The customer's opinion of an answer: a rating, whether it solved the problem, or both. The last one counts."""


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
    """The answer is guaranteed: Kafka has acknowledged the request (acks=all), or the fallback answers immediately."""

    response_id: str
    event_id: str
    bucket: Bucket
    eta_ms: int | None = None
    cursor: str | None = None


class ResponseDelta(Message, frozen=True, tag="response.output_text.delta"):
    """`seq` counts from 0 without gaps; `offset` is the number of characters (code points) before this delta."""

    response_id: str
    seq: int
    offset: int
    delta: str
    cursor: str


class ResponseDone(Message, frozen=True, tag="response.done"):
    response: Response
    cursor: str


class HandoffCreated(Message, frozen=True, tag="handoff.created"):
    """A person has been asked to take over, and Kafka has acknowledged it (acks=all). Sent again, with the same id, to
    a client that reconnects or asks again while the hand-off is open.
    """

    handoff_id: str
    reason: HandoffReason
    created_at: int  # Unix milliseconds
    event_id: str | None = None


class PersonState(Message, frozen=True, tag="person.state"):
    """Who answers in this conversation, and the person's name. Sent on each change, and to a client that returns. From
    `taken` on the client gets no word of the model or the FAQ, until `bot` or `resolved`.
    """

    state: TalkState
    name: str | None = None


class PersonMessage(Message, frozen=True, tag="person.message"):
    """A person's words. `n` grows with each message of the conversation; the client sends its last one as `talk`."""

    message_id: str
    n: Count
    name: str
    text: str
    at: int  # Unix milliseconds


class FeedbackRecorded(_Rated, frozen=True, tag="feedback.recorded"):
    """The recorded feedback of an answer; it replaces earlier feedback."""


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
    | PersonState
    | PersonMessage
    | FeedbackRecorded
    | ErrorEvent
    | Ping
)

# --- Kafka ----------------------------------------------------------------------------------------------------------


class ChatRequest(Message, frozen=True, tag="chat.request"):
    """A request on `chat.requests*`. Other services must set `id`, `session_id` and `input`; the first reader fills in
    the other fields from its settings. Times are absolute, in Unix milliseconds.

    Attributes:
        generation: the conversation's generation when the question was asked (`shared.conversation.erasures`); without
            it `created_unix_ms` decides.
        concurrent: the conversation's other questions that were open when this one was asked. Their turns are never in
            its prompt.
        after: the conversation's last answer that has ended, if its turn is in the history or about to be. The worker
            waits for that turn.
        turns, instructions: those of `ResponseCreate`.
        revision: the version that should answer, according to the registry's state `epoch`. A worker without it answers
            with its own version and says so.
        answered: set in the shadow lane. No client reads that answer, which is compared with this one.
    """

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
    after: Identifier | None = None


class ReplyDelta(Message, frozen=True, tag="chat.delta"):
    """Some text of an answer. `attempt` identifies one worker's try at the request, and increases. `revision` is the
    version that writes the text; no other version continues it.
    """

    request_id: str
    session_id: str
    attempt: int
    seq: int
    offset: int
    delta: str
    revision: str = ""


class ReplyDone(Outcome, frozen=True, tag="chat.done"):
    """An answer's end on Kafka. The reader keeps a request's first one and drops the others. A gateway that ends an
    answer itself writes it too, for the gateway to which its client may reconnect. `times` is set if the request's
    `traceparent` says that its trace is recorded.
    """

    request_id: str
    session_id: str
    attempt: int
    origin: Origin = "worker"
    times: WorkerTimes | None = None


class Cancel(Message, frozen=True, tag="chat.cancel"):
    """Cancels an answer. `reply_partition` limits it to readers on that partition; `created_unix_ms` to the request
    created then, so that a retry under the same id is not cancelled.
    """

    request_id: Identifier
    reply_partition: Count | None = None
    created_unix_ms: UnixMs | None = None


class Adopt(Message, frozen=True, tag="chat.adopt"):
    """An answer's client has connected to the gateway of `reply_partition`: the answer is sent there too, from its
    beginning. `created_unix_ms` is that of its request.
    """

    request_id: Identifier
    reply_partition: Count
    created_unix_ms: Count


class Forgotten(Message, frozen=True, tag="chat.forgotten"):
    """Nothing learned or recorded from a conversation before `unix_ms` may be stored any longer: it was erased, or its
    customer withdrew the consent to training. `person` is the conversation's digest (`SessionKey.digest`).
    """

    person: Identifier
    unix_ms: UnixMs


class Erase(Message, frozen=True, tag="chat.erase"):
    """A conversation is erased and now has this generation (`shared.conversation.erasures`): workers and gateways drop
    what they store of earlier ones.
    """

    tenant: Identifier
    session_id: Identifier
    generation: Count


class PeopleMove(Message, frozen=True, tag="people.move"):
    """Another answerer of a conversation. Of two moves of one epoch the first in the log counts.

    Attributes:
        agent: the person who takes the conversation, or gives it back; empty if a gateway moved it.
        name: how the customer sees the person.
        reason, language: of the hand-off, for `waiting`.
        generation: the conversation's (`shared.conversation.erasures`).
    """

    tenant: Tenant
    session_id: Identifier
    epoch: Count
    to: TalkState
    agent: str = ""
    name: str = ""
    reason: Label = ""
    language: Language = "en"
    generation: Count = 0


class PeopleSaid(Message, frozen=True, tag="people.said"):
    """Words in a conversation that a person has taken. A message counts once by its `message_id`; a person's only in
    the epoch in which that person has the conversation.
    """

    tenant: Tenant
    session_id: Identifier
    message_id: Identifier
    by: Literal["customer", "agent"]
    text: Text
    epoch: Count = 0
    agent: str = ""
    generation: Count = 0


PeopleRecord = PeopleMove | PeopleSaid | Erase
Reply = ReplyDelta | ReplyDone
# Notices about a request that was asked before.
Notice = Cancel | Adopt
CLIENT_TYPES: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(ClientMessage))
