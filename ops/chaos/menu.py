"""Every fault that `replyline chaos` can make: what is done, what must hold all the same, whom it wakes. Pure.

The alerts are those of `ops/alerts/rules.yml`; a fault that wakes nobody says why.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ops.chaos.schedule import Kind

RUNBOOKS: Final = "docs/runbooks"


class Tool(Enum):
    """What a machine may lack, and the command that helps."""

    JAVA = "apt-get install openjdk-17-jre-headless maven"
    REDIS = "pip install 'replyline[embedded]' (or: apt-get install redis-server)"
    ALERTS = "apt-get install --no-install-recommends prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dish:
    """`alert` fires while it lasts, and `runbook` is where its section stands; without one `quiet` says why. None of
    them needs root. `one_broker`: what it stands between is one broker and its clients, not three."""

    kind: Kind
    does: str
    holds: str
    alert: str | None = None
    page: str | None = None
    quiet: str = ""
    needs: tuple[Tool, ...] = (Tool.JAVA, Tool.REDIS)
    one_broker: bool = False

    @property
    def runbook(self) -> str | None:
        return None if self.alert is None else f"{RUNBOOKS}/{self.page}.md#{self.alert.lower()}"


_ANSWERED: Final = "each accepted request ends once, rightly, by its deadline + 250 ms"
_RESUMED: Final = "clients resume by cursor at either gateway; no text is repeated or missing"
_FALLBACK: Final = "what Kafka did not acknowledge is not accepted; the fallback answers it in time"
_THEIRS: Final = "it is the customers' own way: the service is well"

MENU: Final = (
    Dish(
        kind=Kind.WORKER,
        does="kills a worker (SIGKILL, as the loss of its machine or its GPU does), starts it again",
        holds="another takes over its partitions and goes on with the same text; " + _ANSWERED,
        alert="ProcessDown",
        page="processes",
    ),
    Dish(
        kind=Kind.GATEWAY,
        does="kills a gateway, starts it again on its port",
        holds=_RESUMED,
        alert="ProcessDown",
        page="processes",
    ),
    Dish(
        kind=Kind.REDIS,
        does="kills Redis, starts it again with nothing in it",
        holds="answers come without history and cache; none is lost",
        alert="RedisUnavailable",
        page="redis",
    ),
    Dish(
        kind=Kind.BROKER,
        does="kills a broker, starts it again with its log",
        holds=f"three: nothing that was acknowledged is lost; one: {_FALLBACK}",
        alert="KafkaUnreachable",
        page="kafka",
    ),
    Dish(
        kind=Kind.DISK_FULL,
        does="lets no file of a broker grow any more (RLIMIT_FSIZE), until it has space and is started again",
        holds=f"the broker ends itself and comes back with its log; {_FALLBACK}",
        alert="KafkaUnreachable",
        page="kafka",
    ),
    Dish(
        kind=Kind.REBALANCE,
        does="asks a worker to go, starts it again: the group is divided twice",
        holds=_ANSWERED,
        alert="Rebalancing",
        page="kafka",
    ),
    Dish(
        kind=Kind.ROLL,
        does="replaces every gateway and worker in turn, as a deployment does",
        holds="no request fails, and nobody is excused",
        quiet="a deployment that ends wakes nobody; one that does not is DrainStuck",
    ),
    Dish(kind=Kind.CUT, does="resets a client's own connection", holds=_RESUMED, quiet=_THEIRS),
    Dish(
        kind=Kind.LATENCY, does="clients of one gateway are 50 ms away, each way", holds=_ANSWERED, quiet=_THEIRS
    ),
    Dish(
        kind=Kind.TIMEOUT,
        does="nothing passes between one gateway and its clients; then a reset",
        holds=_RESUMED,
        quiet=_THEIRS,
    ),
    Dish(kind=Kind.RESET, does="resets all clients of one gateway", holds=_RESUMED, quiet=_THEIRS),
    Dish(
        kind=Kind.SLOW_CLOSE,
        does="ends all connections to one gateway, one side told a second late",
        holds=_RESUMED,
        quiet=_THEIRS,
    ),
    Dish(kind=Kind.BANDWIDTH, does="clients of one gateway have 32 kB/s each", holds=_ANSWERED, quiet=_THEIRS),
    Dish(kind=Kind.SLICER, does="clients of one gateway get 16 bytes at a time", holds=_ANSWERED, quiet=_THEIRS),
    Dish(
        kind=Kind.SLOW_KAFKA,
        does="Kafka is 150 ms away from every process, each way",
        holds=_ANSWERED,
        alert="FirstTextSlow",
        page="slow-answers",
        one_broker=True,
    ),
    Dish(
        kind=Kind.SLOW_REDIS,
        does="Redis is 150 ms away from every process, each way: further than it is waited for",
        holds="answers come without history and cache; none is lost or late",
        alert="RedisUnavailable",
        page="redis",
        one_broker=True,
    ),
    Dish(
        kind=Kind.PARTITION,
        does="parts one gateway or worker from Kafka; what was sent meanwhile comes late",
        holds=f"the group goes on without a worker that is parted, and what it says late is not told; {_FALLBACK}",
        alert="KafkaUnreachable",
        page="kafka",
        one_broker=True,
    ),
    Dish(
        kind=Kind.PARTITION_OUT,
        does="the same in one direction: Kafka does not hear that process",
        holds=_FALLBACK,
        alert="KafkaUnreachable",
        page="kafka",
        one_broker=True,
    ),
    Dish(
        kind=Kind.PARTITION_IN,
        does="the same in the other: that process does not hear Kafka",
        holds=_FALLBACK,
        alert="KafkaUnreachable",
        page="kafka",
        one_broker=True,
    ),
    Dish(
        kind=Kind.BURST,
        does="five to eight times the rate, for some seconds",
        holds="what is too much is refused or answered by the fallback at once; " + _ANSWERED,
        alert="TrafficSurge",
        page="traffic",
    ),
    Dish(
        kind=Kind.NOISE,
        does="poison and forged records on every topic, and connections that break the protocol, beside the load",
        holds=f"requests that cannot be served are dead letters; {_ANSWERED}",
        alert="DeadLetters",
        page="errors",
    ),
    Dish(
        kind=Kind.CLOCK_SKEW,
        does="the clock of one gateway or worker jumps 5 s ahead or behind, and back",
        holds="no text is wrong, doubled, lost or another's; what waits when a gateway's clock jumps back comes late",
        alert="ClocksDiffer",
        page="slow-answers",
    ),
)  # fmt: skip
BY_KIND: Final = {dish.kind: dish for dish in MENU}
