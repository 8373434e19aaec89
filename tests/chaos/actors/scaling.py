"""Workers that join when a fleet grows and are drained when it shrinks, and zones that are lost as a whole."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ops.stack.processes import ServiceError
from tests.chaos.actors.brokers import Brokers
from tests.chaos.actors.member import Member
from tests.chaos.faults.schedule import Fault, Kind


@dataclass(slots=True, kw_only=True)
class Scaling:
    """`gateways` and `workers` are the permanent members, one of each number in a zone; `comers` have joined and not
    left. `make` creates a worker with a name, `launch` starts a member and waits for it, `note` receives each step
    taken."""

    gateways: Sequence[Member]
    workers: Sequence[Member]
    brokers: Brokers
    make: Callable[[str], Member]
    launch: Callable[[Member], Awaitable[None]]
    note: Callable[[str], None]
    comers: list[Member] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def carry_out(self, fault: Fault) -> bool:
        """Return True: there is always something to hit. Raises `ServiceError`."""
        match fault.kind:
            case Kind.SCALE_OUT:
                await self._grow(fault.target + 1)
            case Kind.SCALE_IN:
                await self._shrink(fault.target + 1)
            case _:
                await self._lose_zone(fault.target, fault.down_s)
        return True

    async def _grow(self, count: int) -> None:
        coming = [self.make(f"comer-{next(self._numbers)}") for _ in range(count)]
        self.comers += coming
        await asyncio.gather(*map(self.launch, coming))

    async def _shrink(self, count: int) -> None:
        """Stop the oldest added member. If none was added, restart the last worker."""
        going = self.comers[:count]
        await asyncio.gather(*map(self._drain, going or self.workers[-1:]))
        self.comers = [member for member in self.comers if member not in going]
        if not going:
            await self.launch(self.workers[-1])

    async def _drain(self, member: Member) -> None:
        self.note(f"{member.name} is to drain")
        if not await member.drained():
            raise ServiceError(f"{member.name} has not drained")
        self.note(f"{member.name} drained")
        if not await member.leave():
            raise ServiceError(f"{member.name} has not ended")
        self.note(f"{member.name} gone")

    async def _lose_zone(self, zone: int, down_s: float) -> None:
        """Kill every member of a zone at the same time, and restart them later."""
        lost = [*self.gateways[zone : zone + 1], self.workers[zone]]
        self.brokers.halt(zone)
        for member in lost:
            member.kill()
        self.note(f"zone {zone} lost: {', '.join(member.name for member in lost)} killed")
        await asyncio.sleep(down_s)
        await asyncio.gather(self.brokers.bring_back(zone), *map(self.launch, lost))
        self.note(f"zone {zone} back")
