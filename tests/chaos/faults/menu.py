"""Every fault that `replyline chaos` can make: what is done, what must hold all the same, whom it wakes. Pure.

The alerts are those of `ops/alerts/rules.yml`; a fault that wakes nobody says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ops.stack.embedded import REDIS_INSTALL_COMMAND
from tests.chaos.faults.schedule import INSIDE, Kind

RUNBOOKS: Final = "docs/runbooks"
_PAGES: Final[Mapping[str, str]] = {
    "ClocksDiffer": "slow-answers",
    "DeadLetters": "errors",
    "FirstTextSlow": "slow-answers",
    "KafkaUnreachable": "kafka",
    "ProcessDown": "processes",
    "Rebalancing": "kafka",
    "RedisUnavailable": "redis",
    "TrafficSurge": "traffic",
}


class Tool(Enum):
    """What a machine may lack, and the command that helps."""

    JAVA = "apt-get install openjdk-17-jre-headless maven"
    REDIS = REDIS_INSTALL_COMMAND
    ALERTS = "apt-get install --no-install-recommends prometheus"


NEEDED: Final = (Tool.JAVA, Tool.REDIS)
"""By each of them; none needs root."""


@dataclass(frozen=True, slots=True)
class Dish:
    """`alert` fires while it lasts; without one `quiet` says why."""

    kind: Kind
    does: str
    holds: str
    alert: str | None = None
    quiet: str = ""

    @property
    def runbook(self) -> str | None:
        """The alert's section."""
        return None if self.alert is None else f"{RUNBOOKS}/{_PAGES[self.alert]}.md#{self.alert.lower()}"

    @property
    def one_broker(self) -> bool:
        """What it stands between is one broker and its clients, not three."""
        return self.kind in INSIDE


_ANSWERED: Final = "each accepted request ends once, rightly, by its deadline + 250 ms"
_RESUMED: Final = "clients resume by cursor at either gateway; no text is repeated or missing"
_FALLBACK: Final = "what Kafka did not acknowledge is not accepted; the fallback answers it in time"
_NO_CACHE: Final = "answers come without history and cache; none is lost or late"
_THEIRS: Final = "it is the customers' own way: the service is well"

# kind, what is done, what must hold all the same
MENU: Final = (
    # --- processes
    Dish(
        Kind.WORKER,
        "kills a worker (SIGKILL, as the loss of its machine or its GPU does), starts it again",
        f"another takes over its partitions and goes on with the same text; {_ANSWERED}",
        alert="ProcessDown",
    ),
    Dish(
        Kind.HANG,
        "lets a worker's engine hang in a step; starts the worker again when it has ended itself",
        f"it gives its partitions up and ends within its step limit and 4 s; {_ANSWERED}",
        alert="ProcessDown",
    ),
    Dish(Kind.GATEWAY, "kills a gateway, starts it again on its port", _RESUMED, alert="ProcessDown"),
    Dish(Kind.REDIS, "kills Redis, starts it again with nothing in it", _NO_CACHE, alert="RedisUnavailable"),
    Dish(
        Kind.BROKER,
        "kills a broker, starts it again with its log",
        f"three: nothing that was acknowledged is lost; one: {_FALLBACK}",
        alert="KafkaUnreachable",
    ),
    Dish(
        Kind.DISK_FULL,
        "lets no file of a broker grow any more (RLIMIT_FSIZE), until it has space and is started again",
        f"the broker ends itself and comes back with its log; {_FALLBACK}",
        alert="KafkaUnreachable",
    ),
    Dish(
        Kind.REBALANCE,
        "asks a worker to go, starts it again: the group is divided twice",
        _ANSWERED,
        alert="Rebalancing",
    ),
    Dish(
        Kind.ROLL,
        "replaces every gateway and worker in turn, as a deployment does",
        "no request fails, and nobody is excused",
        quiet="a deployment that ends wakes nobody; one that does not is DrainStuck",
    ),
    # --- between clients and gateways
    Dish(Kind.CUT, "resets a client's own connection", _RESUMED, quiet=_THEIRS),
    Dish(Kind.LATENCY, "clients of one gateway are 50 ms away, each way", _ANSWERED, quiet=_THEIRS),
    Dish(
        Kind.TIMEOUT, "nothing passes between one gateway and its clients; then a reset", _RESUMED, quiet=_THEIRS
    ),
    Dish(Kind.RESET, "resets all clients of one gateway", _RESUMED, quiet=_THEIRS),
    Dish(
        Kind.SLOW_CLOSE, "ends all connections to one gateway, one side told a second late", _RESUMED, quiet=_THEIRS
    ),
    Dish(Kind.BANDWIDTH, "clients of one gateway have 32 kB/s each", _ANSWERED, quiet=_THEIRS),
    Dish(Kind.SLICER, "clients of one gateway get 16 bytes at a time", _ANSWERED, quiet=_THEIRS),
    # --- between the processes and what they stand on
    Dish(Kind.SLOW_KAFKA, "Kafka is 150 ms away from every process, each way", _ANSWERED, alert="FirstTextSlow"),
    Dish(
        Kind.SLOW_REDIS,
        "Redis is 150 ms away from every process, each way: further than it is waited for",
        _NO_CACHE,
        alert="RedisUnavailable",
    ),
    Dish(
        Kind.PARTITION,
        "parts one gateway or worker from Kafka; what was sent meanwhile comes late",
        f"the group goes on without a worker that is parted, and what it says late is not told; {_FALLBACK}",
        alert="KafkaUnreachable",
    ),
    Dish(
        Kind.PARTITION_OUT,
        "the same in one direction: Kafka does not hear that process",
        _FALLBACK,
        alert="KafkaUnreachable",
    ),
    Dish(
        Kind.PARTITION_IN,
        "the same in the other: that process does not hear Kafka",
        _FALLBACK,
        alert="KafkaUnreachable",
    ),
    # --- what comes in, and what time it is
    Dish(
        Kind.BURST,
        "five to eight times the rate, for some seconds",
        f"what is too much is refused or answered by the fallback at once; {_ANSWERED}",
        alert="TrafficSurge",
    ),
    Dish(
        Kind.NOISE,
        "poison and forged records on every topic, and connections that break the protocol, beside the load",
        f"requests that cannot be served are dead letters; {_ANSWERED}",
        alert="DeadLetters",
    ),
    Dish(
        Kind.CLOCK_SKEW,
        "the clock of one gateway or worker jumps a second, a minute or an hour ahead or behind, and back",
        _ANSWERED,
        alert="ClocksDiffer",
    ),
    Dish(
        Kind.CLOCK_WRONG,
        "replaces a gateway or worker by one whose clock is as far off from the start, then by a right one",
        _ANSWERED,
        alert="ClocksDiffer",
    ),
)  # fmt: skip
BY_KIND: Final = {dish.kind: dish for dish in MENU}
