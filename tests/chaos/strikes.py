"""Carries out faults, each where it belongs: processes, the clients' network, the ways to Kafka and Redis, noise."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from shared.settings.kafka import KafkaSettings
from tests.chaos.actors.fleet import Fleet
from tests.chaos.actors.load import Load
from tests.chaos.actors.noisemaker import Noisemaker
from tests.chaos.faults.schedule import CLOCKS, INSIDE, NETWORK, Fault, Kind
from tests.chaos.hops.gates import Gates
from tests.chaos.ledger.requests import Line

_NOISE_WAITS_MS: Final = 2_000
OF_THE_LOAD: Final = frozenset((Kind.CUT, Kind.BURST, *NETWORK))


@dataclass(slots=True)
class Site:
    """The processes, and the proxies between them where a fault wants some."""

    fleet: Fleet
    gates: Gates | None

    @property
    def lines(self) -> list[Line]:
        return [*self.fleet.lines, *(self.gates.lines if self.gates is not None else ())]


@contextmanager
def site(kinds: Collection[Kind], *, brokers: int, settings: Mapping[str, str] | None = None) -> Iterator[Site]:
    """Not started yet. Only what these faults need stands between the processes. `settings` of gateways and workers
    beside the usual ones."""
    with ExitStack() as stack:
        gates = stack.enter_context(Gates()) if any(kind in INSIDE for kind in kinds) else None
        fleet = Fleet(
            brokers=brokers,
            before={} if gates is None else gates.before,
            clocks=any(kind in CLOCKS for kind in kinds),
            hangs=Kind.HANG in kinds,
            settings=settings or {},
        )
        yield Site(stack.enter_context(fleet), gates)


@dataclass(slots=True)
class Strikes:
    site: Site
    load: Load
    chance: Random
    noise: Noisemaker = field(init=False)

    def __post_init__(self) -> None:
        settings = KafkaSettings(bootstrap_servers=self.site.fleet.bootstrap, request_timeout_ms=_NOISE_WAITS_MS)
        self.noise = Noisemaker(settings, self.site.fleet.gateway_ports, self.chance)

    async def carry_out(self, fault: Fault) -> None:
        """Returns when it is over and all is up again, at once where the load or the proxies see to that. A burst is in
        the load already. Raises `ServiceError`."""
        if fault.kind in INSIDE:
            assert self.site.gates is not None, "there for these"
            self.site.gates.strike(fault)
        elif fault.kind is Kind.NOISE:
            await self.noise.make(fault.down_s)
        elif fault.kind is not Kind.BURST and fault.kind in OF_THE_LOAD:
            self.load.strike(fault)
        elif fault.kind is not Kind.BURST:
            await self.site.fleet.strike(fault)

    def relieve(self) -> None:
        """What lasts is over now; whoever carries it out returns when all is up again."""
        self.site.fleet.relieve()
        self.noise.hush()
        if self.site.gates is not None:
            self.site.gates.relieve()

    async def met(self) -> dict[str, int]:
        """What the faults came upon, by a name."""
        gates, fleet = self.site.gates, self.site.fleet
        letters = await self.noise.letters() if self.noise.num_records else 0
        return {
            "bytes between processes and proxies": 0 if gates is None else gates.carried_bytes,
            "records of noise": self.noise.num_records,
            "connections of noise": self.noise.num_connections,
            "dead letters": letters,
            "brokers ended by their full disk": fleet.disks_that_ended,
        }
