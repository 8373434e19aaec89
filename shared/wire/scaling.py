"""The records of autoscaling: what gateways report of the demand, and what `replyline autoscale` decides about the
number of workers."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from shared.wire.fields import Count, Identifier
from shared.wire.lanes import Lane
from shared.wire.messages import Bucket
from shared.wire.outcome import Message
from shared.wire.reports import PricedMessage

Amount = Annotated[float, Meta(ge=0.0, le=1e15)]


class BucketDemand(Struct, frozen=True, omit_defaults=True):
    """The requests of one bucket since the gateway started. `work_ms` is their predicted machine time, `turned_away`
    counts the requests that admission kept from the workers.

    `judged` counts the requests that have ended and had the shop's promise to meet, and `in_time` those that met both
    of its deadlines. What a lack of workers costs (fallbacks by overload, late answers) is judged and not in time; what
    the customer or the gateway ended is not judged."""

    requests: Count = 0
    work_ms: Amount = 0.0
    turned_away: Count = 0
    judged: Count = 0
    in_time: Count = 0


class DemandReport(Message, frozen=True, tag="chat.demand"):
    """A gateway's report of what its customers have asked since it started, before admission. The counts only grow, so
    a lost report changes nothing; `since_unix_ms` is when they began. A record without a value says that the gateway
    ends.

    `epoch` is the registry's state that the gateway follows, `rung` the rung of the ladder on which requests begin,
    `breakers` the lanes whose breaker is open. Releases before these fields leave out `rung`.
    """

    gateway_id: Identifier
    unix_ms: Count
    since_unix_ms: Count
    asked: dict[Lane, dict[Bucket, BucketDemand]] = field(default_factory=dict)
    epoch: Count = 0
    rung: str | None = None
    breakers: tuple[Lane, ...] = ()


class ScalingRecord(PricedMessage, frozen=True, tag="chat.scaling"):
    """The size of a pool of workers: `wanted` by the autoscaler, `found` in the workers' reports, and the reason.
    Written once a minute, which is also the history for forecasts, and at each change of `wanted`.

    `asked` is the machine time that a second asked, the mean of the last minute; None while no gateway says.
    `expected` is what the forecast takes it to be when a worker that starts now serves, and `carries` what one worker
    is simulated to take. `trust` is the share of that which workers were measured to take. `most` bounds `wanted`.
    `variants` is the order in which the lane's pools are filled, as this autoscaler was given it."""

    pool: Identifier
    unix_ms: Count
    kind: Literal["minute", "change"]
    wanted: Count
    found: Count
    reason: str
    asked: Amount | None = None
    expected: Amount | None = None
    carries: Amount = 0.0
    trust: Amount = 1.0
    most: Count = 0
    variants: tuple[Identifier, ...] = ()
