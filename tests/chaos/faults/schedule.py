"""Which faults occur, when, and in which process: a pure function of a seed, within what the system must survive.

Of two gateways, two workers and three brokers one is down at a time, and the next fault waits until the previous
process has had time to recover; the runner also waits for that. Faults of different kinds may overlap.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.errors import SettingsError


class Kind(StrEnum):
    """`WORKER`, `GATEWAY`, `REDIS` and `BROKER` are killed; Redis restarts empty, a broker with its log. `HANG`: a
    worker's engine hangs. `SEGFAULT`: it crashes its worker in mid-step. `DISK_FULL`: no file of a broker grows.
    `REBALANCE`: a worker is stopped with SIGTERM and started again. `ROLL`: so is every gateway and worker in turn, as
    in a deployment. `CUT`: a client drops its own socket. `BURST`: five to eight times the rate. `NOISE`: traffic that
    no honest client sends. `CLOCK_SKEW`: a process's clock jumps, and back; `CLOCK_WRONG`: it is off from the process's
    start. `SWITCH`: the champion is another version. `ROLLBACK`: a canary gets a share, and loses it. `CONTROLLER`: a
    rollout's controller is killed and started again. `SCALE_OUT`: one or two workers join; `SCALE_IN`: as many are
    drained and end. `ZONE`: a broker, and the gateway and worker of its zone, are killed together. `Proxy.worsen`
    describes what a proxy does to connections."""

    WORKER = "worker"
    HANG = "hang"
    SEGFAULT = "segfault"
    GATEWAY = "gateway"
    REDIS = "redis"
    BROKER = "broker"
    DISK_FULL = "disk-full"
    REBALANCE = "rebalance"
    ROLL = "roll"
    CUT = "cut"
    LATENCY = "latency"
    TIMEOUT = "timeout"
    RESET = "reset"
    SLOW_CLOSE = "slow-close"
    BANDWIDTH = "bandwidth"
    SLICER = "slicer"
    SLOW_KAFKA = "slow-kafka"
    SLOW_REDIS = "slow-redis"
    PARTITION = "partition"
    PARTITION_OUT = "partition-out"
    PARTITION_IN = "partition-in"
    BURST = "burst"
    NOISE = "noise"
    CLOCK_SKEW = "clock-skew"
    CLOCK_WRONG = "clock-wrong"
    SWITCH = "switch"
    ROLLBACK = "rollback"
    CONTROLLER = "controller"
    SCALE_OUT = "scale-out"
    SCALE_IN = "scale-in"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Group:
    """Targets of which only one may be down at a time: the kinds of fault, the number of targets, how long one is down
    and how long it takes to recover, in seconds; the last fault begins `tail_s` before the load's end."""

    kinds: tuple[Kind, ...]
    targets: int
    down_s: tuple[float, float]
    recovery_s: float
    tail_s: float = 2.0

    @property
    def spacing_s(self) -> float:
        return self.down_s[1] + self.recovery_s


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_s` counts from the load's beginning; `down_s` is the time until the killed process is started again, or until
    the fault is reverted. `target` is a number below the group's `targets` and selects the process, proxy or client;
    for a burst it encodes the factor (`burst_factor`), for a clock its process and error (`member_of`, `clock_off_s`).
    """

    at_s: float
    kind: Kind
    target: int
    down_s: float


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that was carried out. `back_s`: from the kill until all was up again."""

    kind: Kind
    at_s: float
    back_s: float


NETWORK: Final = (Kind.LATENCY, Kind.TIMEOUT, Kind.RESET, Kind.SLOW_CLOSE, Kind.BANDWIDTH, Kind.SLICER)
CLOCKS: Final = (Kind.CLOCK_SKEW, Kind.CLOCK_WRONG)
SCALED: Final = (Kind.SCALE_OUT, Kind.SCALE_IN, Kind.ZONE)
VERSIONS: Final = (Kind.SWITCH, Kind.ROLLBACK, Kind.CONTROLLER)
SLOW: Final = (Kind.SLOW_KAFKA, Kind.SLOW_REDIS)
PARTITIONS: Final = (Kind.PARTITION, Kind.PARTITION_OUT, Kind.PARTITION_IN)
INSIDE: Final = (*SLOW, *PARTITIONS)
"""The network between the processes and Kafka or Redis; the other network faults are between clients and gateways."""
ZONES: Final = 3
GATEWAYS: Final = 2
WORKERS: Final = 2
MEMBERS: Final = GATEWAYS + WORKERS
"""Gateways first."""
PER_MINUTE: Final[Mapping[Kind, float]] = {
    Kind.WORKER: 3,
    Kind.GATEWAY: 2,
    Kind.REDIS: 1,
    Kind.BROKER: 1,
    Kind.REBALANCE: 1,
    Kind.CUT: 30,
    **dict.fromkeys(NETWORK, 1),
}
_TAKEN: Final[Mapping[Kind, tuple[Kind, ...]]] = {
    Kind.REBALANCE: (Kind.WORKER,),
    Kind.HANG: (Kind.WORKER,),
    Kind.SEGFAULT: (Kind.WORKER,),
    Kind.DISK_FULL: (Kind.BROKER,),
    Kind.ROLLBACK: (Kind.SWITCH,),
    Kind.CONTROLLER: (Kind.SWITCH,),
    Kind.SCALE_IN: (Kind.SCALE_OUT, Kind.WORKER),
    Kind.ZONE: (Kind.BROKER, Kind.GATEWAY, Kind.WORKER),
}
CLOCKS_OFF_S: Final = (1.0, -1.0, 60.0, -60.0, 3_600.0, -3_600.0)
_LEAD_S: Final = 2.0
_ROLL_S: Final = 10.0
_BURST_FACTORS: Final = (5, 6, 7, 8)


def groups(*, clients: int, brokers: int) -> tuple[Group, ...]:
    """Return the groups of a system with two gateways, two workers, one Redis and this number of brokers."""
    return (
        Group((Kind.WORKER, Kind.REBALANCE), 2, (0.2, 1.5), 5.0),
        Group((Kind.HANG, Kind.SEGFAULT), WORKERS, (0.2, 1.5), 16.0, 18.0),
        Group((Kind.GATEWAY,), 2, (0.2, 2.0), 5.0),
        Group((Kind.REDIS,), 1, (0.1, 2.0), 2.0),
        Group((Kind.BROKER, Kind.DISK_FULL), brokers, (1.0, 4.0), 15.0 if brokers > 1 else 10.0),
        Group((Kind.ROLL,), 1, (0.0, 0.0), _ROLL_S, _ROLL_S),
        Group((Kind.CUT,), clients, (0.0, 0.0), 0.0),
        Group(NETWORK, 2, (1.0, 3.0), 1.0),
        Group(INSIDE, MEMBERS, (2.0, 5.0), 4.0, 7.0),
        Group((Kind.BURST,), len(_BURST_FACTORS), (2.0, 4.0), 4.0, 6.0),
        Group((Kind.NOISE,), 1, (2.0, 4.0), 1.0, 6.0),
        Group((Kind.CLOCK_SKEW,), len(CLOCKS_OFF_S) * MEMBERS, (3.0, 6.0), 3.0, 8.0),
        Group(VERSIONS, 1, (1.0, 3.0), 12.0, 12.0),
        Group((Kind.SCALE_OUT, Kind.SCALE_IN), 2, (0.0, 0.0), 7.0, 7.0),
        Group((Kind.ZONE,), ZONES, (1.0, 4.0), 20.0, 20.0),
        Group((Kind.CLOCK_WRONG,), len(CLOCKS_OFF_S) * MEMBERS, (3.0, 6.0), 10.0, 18.0),
    )


def burst_factor(target: int) -> int:
    """How many times the rate."""
    return _BURST_FACTORS[target]


def member_of(target: int) -> int:
    """Return the member that this target's clock belongs to."""
    return target % MEMBERS


def taken_by(fault: Fault) -> tuple[str, ...]:
    """Return the targets that no other fault may hit at the same time: of two workers, two gateways and the brokers one
    is hit at a time, by any kind, and a clock by one fault."""
    match fault.kind:
        case Kind.CLOCK_SKEW:
            return (_clock_of(fault.target),)
        case Kind.CLOCK_WRONG:
            killed = Kind.GATEWAY if member_of(fault.target) < GATEWAYS else Kind.WORKER
            return _clock_of(fault.target), killed
        case kind:
            return _TAKEN.get(kind, (kind,))


def _clock_of(target: int) -> str:
    return f"clock {member_of(target)}"


def clock_off_s(target: int) -> float:
    """How far that clock is ahead; behind is negative."""
    return CLOCKS_OFF_S[target // MEMBERS]


def with_bursts(times_s: Sequence[float], faults: Iterable[Fault], *, rate: float, seed: int) -> list[float]:
    """When it is asked, the bursts' own questions too: their factor times the rate for as long as they last, spread by
    chance; ascending."""
    chance = random.Random(f"{seed}/bursts")
    more = [
        fault.at_s + chance.uniform(0, fault.down_s)
        for fault in faults
        if fault.kind is Kind.BURST
        for _ in range(round((burst_factor(fault.target) - 1) * rate * fault.down_s))
    ]
    return sorted([*times_s, *more])


def counts_for(minutes: float, *, brokers: int) -> dict[Kind, int]:
    """Return the default number of faults of each kind; kinds that `PER_MINUTE` does not name occur only on request. A
    single broker is not killed, because no other broker could replace it."""
    counts = {kind: round(PER_MINUTE.get(kind, 0) * minutes) for kind in Kind}
    return counts if brokers > 1 else counts | {Kind.BROKER: 0}


def parse_faults(text: str) -> dict[Kind, int]:
    """Parse `worker=5,gateway=3`. Kinds that are not named do not occur. Raises `SettingsError`."""
    counts = dict.fromkeys(Kind, 0)
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, _, number = part.partition("=")
        if name not in list(Kind) or not number.isdigit():
            raise SettingsError(f"--faults {part}: write kind=count, comma-separated; kinds: {', '.join(Kind)}")
        counts[Kind(name)] = int(number)
    return counts


def draw(seed: int, duration_s: float, counts: Mapping[Kind, int], among: tuple[Group, ...]) -> list[Fault]:
    """Return the faults in order of time; the same seed gives the same. Raises `SettingsError` if they do not fit the
    duration."""
    faults: list[Fault] = []
    for group in among:
        # Each group has a separate random generator: more faults of one group do not move those of the others.
        chance = random.Random(f"{seed}/{group.kinds[0]}")
        kinds = [kind for kind in group.kinds for _ in range(counts.get(kind, 0))]
        chance.shuffle(kinds)
        faults += [
            Fault(round(at_s, 3), kind, chance.randrange(group.targets), round(chance.uniform(*group.down_s), 3))
            for kind, at_s in zip(kinds, _times(chance, group, kinds, duration_s), strict=True)
        ]
    return sorted(faults, key=lambda fault: fault.at_s)


def _times(chance: random.Random, group: Group, kinds: list[Kind], duration_s: float) -> list[float]:
    """Uniform, but never nearer to each other than the group's spacing: drawn without it, and then spread by it."""
    spare_s = duration_s - _LEAD_S - group.tail_s - max(0, len(kinds) - 1) * group.spacing_s
    if kinds and spare_s < 0:
        named = ", ".join(f"{kind}={kinds.count(kind)}" for kind in group.kinds if kind in kinds)
        needed_s = _LEAD_S + group.tail_s + (len(kinds) - 1) * group.spacing_s
        raise SettingsError(
            f"{named} in {duration_s:.0f} s: one after the other they take {needed_s:.0f} s; raise --minutes"
        )
    return [
        _LEAD_S + at_s + number * group.spacing_s
        for number, at_s in enumerate(sorted(chance.uniform(0, spare_s) for _ in kinds))
    ]
