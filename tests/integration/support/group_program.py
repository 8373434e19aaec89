"""Random steps of a consumer group's members, request by request: join, sync, commit, leave, die.

The broker freely chooses the next leader among several followers. So a step names no member by its id: it selects one
by its state (`Member.looks`), and reports for each whether it leads. Where the followers were unlike, two brokers that
chose differently are asked different things in all later steps.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

_PATIENT_MS: Final = 600_000
_BRIEF_MS: Final = 4_000
_AFTERWARDS_S: Final = 6.0  # a short interval is over by that time
_LONG_NOTE: Final = "n" * 5_000
_ID_REQUIRED: Final = 79
_AGAIN_S: Final = 0.2
_LONG_S: Final = 5.0
_ROUNDS: Final = 3


class Member:
    """One member with its own connection: its last answer, and its pending request."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.leads = False
        self.everybody: list[str] = []
        self.protocol = b"as ever"
        self.patience_ms = self.session_ms = _PATIENT_MS
        self.client: AIOKafkaClient | None = None
        self.waiting: tuple[str, asyncio.Task[Any]] | None = None

    @property
    def looks(self) -> Any:
        """Return a broker's knowledge of it, without its id."""
        waits = self.waiting[0] if self.waiting else ""
        told = not self.leads, self.generation, not self.id, len(self.everybody)
        return *told, waits, self.instance or "", self.protocol, self.patience_ms, self.session_ms


class Group:
    """The steps. Each returns the answers that members got during it: `awaited` is the expected number, `told` the
    actual one. A request that should wait has arrived after `settle_s`.
    """

    def __init__(
        self, chance: random.Random, topic: str, options: dict[str, Any], settle_s: float, awaited: Iterable[int]
    ) -> None:
        self._chance, self._group, self._topic, self._options = chance, f"group-of-{topic}", topic, options
        self._settle_s, self._awaited = settle_s, iter(awaited)
        self.told: list[int] = []
        instances = chance.choice(((None, None), (None, None, None), ("fixed", None), ("fixed", None)))
        self._members = [Member(instance) for instance in instances]

    @property
    def steps(self) -> tuple[Callable[[], Awaitable[Any]], ...]:
        twice = self.join, self.sync, self.together, self.heartbeat, self.commit
        return *twice, *twice, self.offsets, self.leave, self.expel, self.reconnect, self.die, self.be_late, self.nobody

    @property
    def looks(self) -> list[str]:
        return sorted(f"{member.looks}" for member in self._members)

    async def start(self) -> None:
        self._admin = await self._connected()
        await asyncio.gather(*(self._connect(member) for member in self._members))
        while (await self._fetched()).error_code:  # noqa: ASYNC110 - a coordinator begins with the first question
            await asyncio.sleep(_AGAIN_S)

    async def stop(self) -> list[Any]:
        """Return the last answers."""
        seen = await self._settled()
        for member in self._members:
            await self._part(member)
        await self._admin.close()
        return seen

    async def _connected(self) -> AIOKafkaClient:
        client = AIOKafkaClient(**self._options)
        await client.bootstrap()
        return client

    async def _connect(self, member: Member) -> None:
        member.client = await self._connected()

    async def _part(self, member: Member) -> None:
        if member.waiting is not None:
            member.waiting[1].cancel()
            await asyncio.gather(member.waiting[1], return_exceptions=True)
            member.waiting = None
        assert member.client is not None, "it is connected"
        await member.client.close()

    async def _ask(self, client: AIOKafkaClient | None, request: Any) -> Any:
        assert client is not None, "it is connected"
        found = await client.send(client.get_random_node(), FindCoordinatorRequest(self._group, 0))
        while found.error_code:  # the first use creates the offsets topic
            await asyncio.sleep(_AGAIN_S)
            found = await client.send(client.get_random_node(), FindCoordinatorRequest(self._group, 0))
        return await client.send(found.coordinator_id, request)

    def _send(self, member: Member, what: str, request: Any) -> None:
        member.waiting = what, asyncio.get_running_loop().create_task(self._ask(member.client, request))

    def _free(self, *, known: bool = False) -> Member | None:
        """Return a member whose connection is free; with `known` one that has an id."""
        free = sorted((each for each in self._members if each.waiting is None), key=lambda member: member.looks)
        number = self._chance.random()
        free = [each for each in free if each.id or not known]
        return free[int(number * len(free))] if free else None

    async def _settled(self) -> list[Any]:
        """Wait until every answerable request is answered; return the answers."""
        waiting, awaited = [member.waiting[1] for member in self._members if member.waiting], next(self._awaited, 0)
        with suppress(TimeoutError):
            for answer in islice(asyncio.as_completed(waiting, timeout=_LONG_S), awaited):
                await answer
        await asyncio.sleep(self._settle_s)
        seen = []
        for member in self._members:
            if member.waiting is not None and member.waiting[1].done():
                (what, task), member.waiting = member.waiting, None
                seen.append(self._told(member, what, task.result()))
        self.told.append(len(seen))
        return sorted(seen)

    def _told(self, member: Member, what: str, response: Any) -> tuple[Any, ...]:
        error, static = response.error_code, member.instance is not None
        if what == "join":
            member.id = response.member_id if error in (0, _ID_REQUIRED) else ""
            if not error:
                member.generation, member.leads = response.generation_id, response.leader_id == response.member_id
                member.everybody = [name for name, *_ in response.members]
            mine = member.generation, member.leads, len(member.everybody)
            return "join", static, error, *(mine if not error else ())
        return "sync", static, error, member.generation, member.leads, response.member_assignment.decode()

    # --- steps

    async def join(self) -> Any:
        """Make one member join or rejoin, now and then with other metadata."""
        member, changed = self._free(), self._chance.random() < 0.3
        if member is None:
            return None
        member.protocol = b"changed" if changed and member.protocol == b"as ever" else b"as ever"
        forgets = member.instance is not None and self._chance.random() < 0.5  # as after a restart
        if forgets:
            member.id, member.generation, member.leads, member.everybody = "", -1, False, []
        self._join(member)
        return await self._settled()

    def _join(self, member: Member) -> None:
        protocols = [("range", member.protocol)]
        times = member.session_ms, member.patience_ms
        request: Any = JoinGroupRequest(self._group, *times, member.id, member.instance, "consumer", protocols)  # type: ignore[arg-type]
        self._send(member, "join", request)

    async def sync(self) -> Any:
        """Make one member sync, or as leader send each member's assignment."""
        member, off = self._free(known=True), self._chance.choice((0, 0, 0, 0, 1))
        if member is None:
            return None
        self._sync(member, off)
        return await self._settled()

    def _sync(self, member: Member, off: int = 0) -> None:
        shares = [(name, b"share of %d" % member.generation) for name in member.everybody]
        request: Any = SyncGroupRequest(self._group, member.generation + off, member.id, member.instance, shares)  # type: ignore[arg-type]
        self._send(member, "sync", request)

    async def together(self) -> Any:
        """Make all members join and sync until each has its assignment."""
        seen = [await self._settled()]
        for _ in range(_ROUNDS):
            left = [member for member in self._members if member.waiting is None]
            while left:
                member = min(left, key=lambda each: each.looks)
                left.remove(member)
                self._join(member)
                seen.append(await self._settled())
            if all(not member.waiting and member.generation >= 0 for member in self._members):
                for member in self._members:
                    self._sync(member)
                seen.append(await self._settled())
                break
        return seen

    async def heartbeat(self) -> Any:
        member, off = self._free(known=True), self._chance.choice((0, 0, 0, 1))
        if member is None:
            return None
        request = HeartbeatRequest(self._group, member.generation + off, member.id)
        return (await self._ask(member.client, request)).error_code, await self._settled()

    async def commit(self) -> Any:
        member, off, offset = self._free(known=True), self._chance.choice((0, 0, 0, 1)), self._chance.randrange(50)
        note, number = self._chance.choice(("", f"note {offset}", _LONG_NOTE)), self._chance.choice((0, 1, 2, 99))
        anybody = member is None or self._chance.random() < 0.2
        generation, name = (-1, "") if anybody or member is None else (member.generation + off, member.id)
        return await self._commit(generation, name, number, offset, note), await self._settled()

    async def _commit(self, generation: int, name: str, number: int, offset: int, note: str) -> int:
        request = OffsetCommitRequest(self._group, generation, name, -1, [(self._topic, [(number, offset, note)])])
        code: int = (await self._ask(self._admin, request)).topics[0][1][0][1]
        return code

    async def offsets(self) -> Any:
        return (await self._fetched()).topics[0][1], await self._settled()

    async def _fetched(self) -> Any:
        return await self._ask(self._admin, OffsetFetchRequest(self._group, [(self._topic, [0, 1, 2])]))

    async def leave(self) -> Any:
        """Make one member leave; it may return as a new one."""
        member = self._free(known=True)
        return None if member is None else await self._leave(member, member.client)

    async def expel(self) -> Any:
        """Make a waiting member be removed by a request on another connection."""
        waiting = sorted((each for each in self._members if each.waiting and each.id), key=lambda each: each.looks)
        number = self._chance.random()
        return await self._leave(waiting[int(number * len(waiting))], self._admin) if waiting else None

    async def _leave(self, member: Member, client: AIOKafkaClient | None) -> Any:
        code = (await self._ask(client, LeaveGroupRequest(self._group, member.id))).error_code
        seen = await self._settled()
        if not code:
            member.id, member.generation, member.leads, member.everybody = "", -1, False, []
        return code, seen

    async def reconnect(self) -> Any:
        """Make one member lose its connection, and with it the answer that it waits for."""
        member = self._chance.choice(sorted(self._members, key=lambda each: each.looks))
        await self._part(member)
        await self._connect(member)
        return await self._settled()

    async def die(self) -> Any:
        """Make one member of a complete group silent for longer than its session."""
        return await self._silent("session_ms", self.heartbeat)

    async def be_late(self) -> Any:
        """Make one member rejoin while the others stay away for longer than the rebalance timeout."""
        return await self._silent("patience_ms", self.join)

    async def _silent(self, what: str, then: Callable[[], Awaitable[Any]]) -> Any:
        brief = self._members if what == "patience_ms" else [min(self._members, key=lambda each: each.looks)]
        for member in brief:
            setattr(member, what, _BRIEF_MS)
            member.protocol = b"brief"
        seen = [await self.together()]
        for member in brief:
            setattr(member, what, _PATIENT_MS)
        seen += [await then()] if what == "patience_ms" else []
        await asyncio.sleep(_AFTERWARDS_S)
        return [*seen, await then(), await self._settled()]

    async def nobody(self) -> Any:
        """Send requests to the group as a non-member."""
        codes = [await self._commit(3, "nobody", 0, 1, "")]
        requests = (
            HeartbeatRequest(self._group, 3, "nobody"),
            SyncGroupRequest(self._group, 3, "nobody", None, []),  # type: ignore[arg-type]
            LeaveGroupRequest(self._group, "nobody"),
        )
        codes += [(await self._ask(self._admin, request)).error_code for request in requests]
        return codes, await self._settled()
