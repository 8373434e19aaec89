"""What processes report: workers their state and versions, gateways what became of answers. Pure."""

from msgspec import field
from msgspec.structs import force_setattr

from shared.wire.fields import (
    Count,
    Identifier,
    PredictedMs,
    Revision,
)
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket, Rating
from shared.wire.outcome import Message
from shared.wire.shadow import Comparison
from shared.wire.step_law import StepLaw


class Refusal(Message, frozen=True):
    """Why a worker has not loaded a version, in the registry's state of that epoch."""

    epoch: Count
    reason: str


class PricedMessage(Message, frozen=True, kw_only=True):
    """A record with `service_ms`, the machine time of one request by bucket, in ms. Buckets without a measurement are
    left out; zeros, which a worker without an answer reports, are dropped.
    """

    service_ms: dict[Bucket, PredictedMs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "service_ms", {bucket: ms for bucket, ms in self.service_ms.items() if ms > 0.0})


class WorkerReport(PricedMessage, frozen=True, tag="chat.worker"):
    """A worker's report of its free capacity. A worker's newest report counts; a record without a value says that the
    worker leaves.

    Attributes:
        partitions: the partitions of each bucket's topic that the worker reads; empty during a rebalance.
        first_token_ms: by bucket served, the predicted time from the arrival of a request now to its first visible
            text.
        service_ms: by bucket served, the predicted service time.
        backlog_ms: the service time of the waiting requests that are kept.
        cold_ms: how much later the first text comes in a conversation of which the worker has stored nothing.
        lane: the lane whose requests the worker serves.
        revisions: the loaded versions. The first one serves requests that do not name another of them.
        refused: versions that the worker was to load and did not.
        pool: the pool that an autoscaler sizes.
        host: the worker's machine or pod; the id may be too short for it.
        law: the duration of its steps; None for an engine that is not timed.
    """

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
    """The end of a rollout's answer as seen by its gateway: evidence for or against a version. `conversation` is a
    digest of tenant and session; `moved` says whether the conversation's previous answer came from another lane, None
    if the gateway does not know.

    `asked_unix_ms` is when the question arrived, 0 if the gateway is of an earlier release. `worker_id` is the worker
    that it was sent to, empty if the gateway does not know. `revision` is the version
    that was asked, `answered_by` the one whose model wrote the answer; empty if no model did. `censored`: another
    version's lane answered, in time or because the asked one had no time, which is evidence for neither version.
    `ttft_ms` is None if the asked version showed no text. `cancelled` (the customer stopped it) and `handed_over` (the
    customer asked for a person) have no deadline to meet: the other outcomes are False then. `rating` comes later, in
    an observation without outcomes. `customer` is a digest of who rated it down, stopped it or asked for a person: the
    token's subject, else the network, under the rule's salt. `compared` is set by a shadow's worker, whose answer no
    customer saw.
    """

    response_id: str
    conversation: str
    lane: Lane
    revision: str
    epoch: Count
    unix_ms: Count
    bucket: Bucket
    asked_unix_ms: Count = 0
    worker_id: str = ""
    language: str = ""
    tenant: str = ""
    moved: bool | None = None
    failed: bool = False
    missed: bool = False
    unsure: bool = False
    ttft_ms: PredictedMs | None = None
    answered_by: str = ""
    censored: bool = False
    cancelled: bool = False
    handed_over: bool = False
    rating: Rating | None = None
    customer: str = ""
    compared: Comparison | None = None
