"""Consumer groups: members, generations, rebalances, sessions, commits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.world.loop import VirtualLoop

NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER: Final = 25
REBALANCING: Final = 27
_GATHER_S: Final = 0.005
Answer = Callable[..., None]


@dataclass(eq=False)
class Member:
    """`join` and `sync` answer the request of that kind that waits."""

    id: str
    session_s: float = 0.0
    rebalance_s: float = 0.0
    protocols: list[tuple[str, bytes]] = field(default_factory=list)
    join: Answer | None = None
    sync: Answer | None = None
    expiry: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Group:
    """`state` is one of Empty, Preparing, Syncing, Stable."""

    state: str = "Empty"
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    leader: str = ""
    assignment: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class Groups:
    """All groups. `committed(topic, partition, before, offset)` is called before a commit counts."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._last_member = 0
        self.by_name: dict[str, Group] = {}
        self.num_rebalances = 0
        self.committed: Callable[[str, int, int, int], None] = lambda *_: None

    def of(self, name: str) -> Group:
        """Return a group, new where there is none."""
        return self.by_name.setdefault(name, Group())

    def join(self, request: Any, answer: Answer) -> None:
        """Take a member in, and begin a rebalance."""
        group = self.of(request.group)
        if request.member_id and request.member_id not in group.members:
            answer(0, UNKNOWN_MEMBER, -1, "", "", "", [])
            return
        if not request.member_id:
            self._last_member += 1
        name = request.member_id or f"member-{self._last_member}"
        member = group.members.setdefault(name, Member(name))
        member.session_s, member.rebalance_s = request.session_timeout / 1_000, request.rebalance_timeout / 1_000
        member.protocols, member.join = list(request.group_protocols), answer
        _stop(member.expiry)
        self._prepare(group)
        self._complete_if_all(group)

    def sync(self, request: Any, answer: Answer) -> None:
        """Hand out the leader's assignment."""
        group = self.of(request.group)
        error = self._error(group, request.member_id, request.generation_id)
        if error or group.state == "Preparing":
            answer(0, error or REBALANCING, b"")
            return
        member = group.members[request.member_id]
        self._alive(group, member)
        if group.state == "Syncing" and member.id == group.leader:
            group.assignment, group.state = dict(request.group_assignment), "Stable"
        member.sync = answer
        if group.state == "Stable":
            for each in group.members.values():
                if each.sync is not None:
                    told, each.sync = each.sync, None
                    told(0, 0, group.assignment.get(each.id, b""))

    def heartbeat(self, request: Any, answer: Answer) -> None:
        """Keep a member's session, and say whether it is to join anew."""
        group = self.of(request.group)
        error = self._error(group, request.member_id, request.generation_id)
        if not error:
            self._alive(group, group.members[request.member_id])
            error = REBALANCING if group.state == "Preparing" else 0
        answer(0, error)

    def leave(self, request: Any, answer: Answer) -> None:
        """Let a member go."""
        group = self.of(request.group)
        error = 0 if request.member_id in group.members else UNKNOWN_MEMBER
        self._remove(group, request.member_id)
        answer(0, error)

    def commit(self, request: Any, answer: Answer) -> None:
        """Take offsets from a member of this generation."""
        group = self.of(request.consumer_group)
        error, generation = 0, request.consumer_group_generation_id
        if generation >= 0 or group.members:
            known = group.members or group.generation
            error = self._error(group, request.consumer_id, generation) if known else ILLEGAL_GENERATION
        if not error and group.state == "Syncing":
            error = REBALANCING
        told = []
        for topic, parts in request.topics:
            for number, offset, metadata in parts if not error else ():
                before = group.offsets.get((topic, number), (0, ""))[0]
                self.committed(topic, number, before, offset)
                group.offsets[topic, number] = offset, metadata
            told.append((topic, [(number, error) for number, *_ in parts]))
        answer(told)

    def offsets(self, request: Any, answer: Answer) -> None:
        """Tell what was committed."""
        known = self.of(request.consumer_group).offsets
        nothing = (-1, "")
        answer(
            [(topic, [(n, *known.get((topic, n), nothing), 0) for n in parts]) for topic, parts in request.topics or ()]
        )

    # --- the rebalance

    def _prepare(self, group: Group) -> None:
        if group.state == "Preparing":
            return
        for member in group.members.values():
            if member.sync is not None:
                told, member.sync = member.sync, None
                told(0, REBALANCING, b"")
        group.state = "Preparing"
        self.num_rebalances += 1
        limit_s = max((member.rebalance_s for member in group.members.values()), default=1.0)
        group.timer = self._loop.after(limit_s, self._complete, group)

    def _complete_if_all(self, group: Group) -> None:
        if group.state == "Preparing" and all(member.join for member in group.members.values()):
            _stop(group.timer)
            group.timer = self._loop.after(_GATHER_S, self._complete, group)

    def _complete(self, group: Group) -> None:
        if group.state != "Preparing":
            return
        for name in [name for name, member in group.members.items() if member.join is None]:
            _stop(group.members.pop(name).expiry)
        if not group.members:
            group.state = "Empty"
            return
        group.generation += 1
        group.state, group.assignment = "Syncing", {}
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
        protocol = group.members[group.leader].protocols[0][0]
        everybody = [(name, dict(member.protocols)[protocol]) for name, member in group.members.items()]
        for name, member in group.members.items():
            told, member.join = member.join, None
            self._alive(group, member)
            assert told is not None, "who did not join is out"
            told(0, 0, group.generation, protocol, group.leader, name, everybody if name == group.leader else [])

    @staticmethod
    def _error(group: Group, member_id: str, generation: int) -> int:
        if member_id not in group.members:
            return UNKNOWN_MEMBER
        return 0 if generation == group.generation else ILLEGAL_GENERATION

    def _alive(self, group: Group, member: Member) -> None:
        _stop(member.expiry)
        member.expiry = self._loop.after(member.session_s, self._expired, group, member)

    def _expired(self, group: Group, member: Member) -> None:
        if group.members.get(member.id) is member and member.join is None:
            self._remove(group, member.id)

    def _remove(self, group: Group, member_id: str) -> None:
        member = group.members.pop(member_id, None)
        if member is None:
            return
        _stop(member.expiry)
        if group.members:
            self._prepare(group)
            self._complete_if_all(group)
        else:
            group.state = "Empty"
            _stop(group.timer)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
