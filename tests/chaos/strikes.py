"""Apply each fault to its target: processes, the clients' network, the routes to Kafka and Redis, noise."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from shared.settings.kafka import KafkaSettings
from tests.chaos.actors.fleet import Fleet
from tests.chaos.actors.load import Load
from tests.chaos.actors.noisemaker import Noisemaker
from tests.chaos.faults.schedule import CLOCKS, INSIDE, NETWORK, VERSIONS, Fault, Kind
from tests.chaos.hops.gates import Gates
from tests.chaos.ledger.requests import Line

_NOISE_WAITS_MS: Final = 2_000
OF_THE_LOAD: Final = frozenset((Kind.CUT, Kind.BURST, *NETWORK))


@contextmanager
def fleet_for(kinds: Collection[Kind], *, brokers: int) -> Iterator[Fleet]:
    """Yield a fleet that is not started. Only the proxies that these faults need are between the processes."""
    with ExitStack() as stack:
        gates = stack.enter_context(Gates()) if any(kind in INSIDE for kind in kinds) else None
        clocks = any(kind in CLOCKS for kind in kinds)
        yield stack.enter_context(
            Fleet(
                brokers=brokers,
                gates=gates,
                clocks=clocks,
                hangs=any(kind in (Kind.HANG, Kind.SEGFAULT) for kind in kinds),
                versions=any(kind in VERSIONS for kind in kinds),
                zones=Kind.ZONE in kinds,
            )
        )


@dataclass(slots=True)
class Strikes:
    fleet: Fleet
    load: Load
    chance: Random
    noise: Noisemaker = field(init=False)

    def __post_init__(self) -> None:
        settings = KafkaSettings(bootstrap_servers=self.fleet.bootstrap, request_timeout_ms=_NOISE_WAITS_MS)
        self.noise = Noisemaker(settings, self.fleet.gateway_ports, self.chance)

    async def carry_out(self, fault: Fault) -> None:
        """Apply a fault and return when it is over and all processes run, or immediately if the load or the proxies
        apply it. A burst is part of the load. Raises `ServiceError`."""
        if fault.kind in INSIDE:
            assert self.fleet.gates is not None, "there for these"
            self.fleet.gates.strike(fault)
        elif fault.kind is Kind.NOISE:
            await self.noise.make(fault.down_s)
        elif fault.kind is not Kind.BURST and fault.kind in OF_THE_LOAD:
            self.load.strike(fault)
        elif fault.kind is not Kind.BURST:
            await self.fleet.strike(fault)

    @property
    def lines(self) -> list[Line]:
        """Everything that was done, for the stories."""
        gates = self.fleet.gates
        return [*self.fleet.lines, *(gates.lines if gates is not None else ()), *self.noise.lines, *self.load.lines]

    async def met(self) -> dict[str, int]:
        """Return what the faults affected, as counts by name."""
        gates = self.fleet.gates
        return {
            "bytes between processes and proxies": 0 if gates is None else gates.carried_bytes,
            "records of noise": self.noise.num_records,
            "connections of noise": self.noise.num_connections,
            "dead letters": await self.noise.letters() if self.noise.num_records else 0,
            "brokers ended by their full disk": self.fleet.disks_that_ended,
        }
