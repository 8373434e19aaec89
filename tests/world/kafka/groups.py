"""Consumer groups: members, generations, rebalances, sessions, commits."""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.world.virtual.loop import VirtualLoop
    from tests.world.virtual.node import Handle

UNKNOWN_TOPIC, LONG_METADATA, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER = 3, 12, 16, 22, 25
REBALANCING, ID_REQUIRED, FENCED = 27, 79, 82
_GATHER_S: Final = 0.005
_AGAIN_S: Final = 0.5
_MOST_METADATA: Final = 4_096
Answer = Callable[..., None]


@dataclass(eq=False)
class Member:
    """A member. `join` and `sync` answer its pending request of that kind; `instance` names a static member."""

    id: str
    instance: str | None
    session_s: float = 0.0
    rebalance_s: float = 0.0
    protocols: list[tuple[str, bytes]] = field(default_factory=list)
    join: Answer | None = None
    sync: Answer | None = None
    expiry: "Handle | None" = None


@dataclass(eq=False)
class Group:
    """A consumer group. `state` is Empty, Preparing, Syncing or Stable. `pending` holds ids that are not members yet,
    `unsynced` the members that have not requested their assignment. A group is `known` once it has had a member or an
    offset."""

    state: str = "Empty"
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    pending: "dict[str, Handle]" = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)
    known: bool = False
    leader: str = ""
    protocol: str = ""
    assignment: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    timer: "Handle | None" = None

    def of_instance(self, instance: str | None) -> Member | None:
        """Return the static member of this name."""
        if instance is None:
            return None
        return next((member for member in self.members.values() if member.instance == instance), None)

    @property
    def rebalance_s(self) -> float:
        """Return how long a rebalance waits for members, in seconds."""
        return max((member.rebalance_s for member in self.members.values()), default=0.0)

    def refuses(self, member_id: str, instance: str | None = None, generation: int | None = None) -> int:
        """Return the error code with which the group refuses this member, or 0."""
        holder = self.of_instance(instance)
        if holder is not None and holder.id != member_id:
            return FENCED
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return 0 if generation in (None, self.generation) else ILLEGAL_GENERATION


class Groups:
    """All consumer groups. `committed(topic, partition, before, offset, metadata)` is called before a commit takes
    effect."""

    def __init__(self, loop: "VirtualLoop", partitions: Container[tuple[str, int]]) -> None:
        self._loop, self._partitions = loop, partitions
        self._last_member = 0
        self.by_name: dict[str, Group] = {}
        self.num_rebalances = 0
        self.committed: Callable[[str, int, int, int, str], None] = lambda *_: None

    def of(self, name: str) -> Group:
        """Return a group, creating it if it does not exist."""
        return self.by_name.setdefault(name, Group())

    def join(self, request: Any, answer: Answer) -> None:
        """Add a member, and begin a rebalance if one is needed."""
        group, name, instance = self.of(request.group), request.member_id, request.group_instance_id
        error = group.refuses(name, instance) if name and name not in group.pending else 0
        if not name:
            self._last_member += 1
            name = f"{instance or 'member'}-{self._last_member}"
            if instance is None:
                error, group.known = ID_REQUIRED, True
                group.pending[name] = self._loop.after(request.session_timeout / 1_000, self._forget, group, name)
        if error:
            answer(0, error, -1, "", "", name, [])
            return
        group.known = True
        _stop(group.pending.pop(name, None))
        leader, old = group.leader, group.of_instance(instance)
        replaces = old is not None and old.id != name
        if old is not None and replaces:
            self._replace(group, old, name)
        member = group.members.setdefault(name, Member(name, instance))
        same = member.protocols == list(request.group_protocols)
        stays = group.state == "Stable" if replaces else same and (group.state != "Stable" or name != leader)
        stays = stays and group.state in ("Syncing", "Stable")
        if replaces or not stays:
            member.session_s, member.rebalance_s = request.session_timeout / 1_000, request.rebalance_timeout / 1_000
            member.protocols = list(request.group_protocols)
        member.join = answer
        _stop(member.expiry)
        if stays:
            self._joined(group, member, leader)
        else:
            self._prepare(group)

    def sync(self, request: Any, answer: Answer) -> None:
        """Distribute the leader's assignment."""
        group = self.of(request.group)
        error = group.refuses(request.member_id, request.group_instance_id, request.generation_id)
        if error or group.state == "Preparing":
            answer(0, error or REBALANCING, b"")
            return
        member = group.members[request.member_id]
        self._alive(group, member)
        group.unsynced.discard(member.id)
        if group.state == "Syncing" and member.id == group.leader:
            group.assignment, group.state = dict(request.group_assignment), "Stable"
        member.sync = answer
        if group.state == "Stable":
            for each in group.members.values():
                _tell_sync(each, 0, group.assignment.get(each.id, b""))

    def heartbeat(self, request: Any, answer: Answer) -> None:
        """Renew a member's session, and return whether it has to rejoin."""
        group = self.of(request.group)
        error = group.refuses(request.member_id, None, request.generation_id)
        if not error:
            self._alive(group, group.members[request.member_id])
            error = REBALANCING if group.state == "Preparing" else 0
        answer(0, error)

    def leave(self, request: Any, answer: Answer) -> None:
        """Remove a member."""
        group, name = self.of(request.group), request.member_id
        begins = name in group.pending
        error = 0 if begins else group.refuses(name)
        self._forget(group, name)
        self._remove(group, name)
        if begins and group.state in ("Syncing", "Stable"):
            self._prepare(group)
        answer(0, error)

    def commit(self, request: Any, answer: Answer) -> None:
        """Commit offsets of a member of this generation, or of any client if the group has no members."""
        group, name = self.of(request.consumer_group), request.consumer_id
        error, generation = 0, request.consumer_group_generation_id
        if generation >= 0 or group.members:
            error = group.refuses(name, None, generation) if group.known else ILLEGAL_GENERATION
        if not error and group.members:
            self._alive(group, group.members[name])
            error = REBALANCING if group.state == "Syncing" else 0
        answer(
            [(topic, [self._commit(group, error, topic, *part) for part in parts]) for topic, parts in request.topics]
        )

    def _commit(self, group: Group, error: int, topic: str, number: int, offset: int, metadata: str) -> tuple[int, int]:
        if (topic, number) not in self._partitions:
            error = UNKNOWN_TOPIC
        group.known = group.known or not error
        if not error and len(metadata or "") > _MOST_METADATA:
            error = LONG_METADATA
        if not error:
            self.committed(topic, number, group.offsets.get((topic, number), (0, ""))[0], offset, metadata)
            group.offsets[topic, number] = offset, metadata
        return number, error

    def offsets(self, request: Any, answer: Answer) -> None:
        """Answer with the committed offsets."""
        known = self.of(request.consumer_group).offsets
        told = [(topic, [(n, *known.get((topic, n), (-1, "")), 0) for n in parts]) for topic, parts in request.topics]
        answer(0, told, 0)

    # --- the rebalance

    def _prepare(self, group: Group) -> None:
        """Require all members to rejoin, unless a rebalance is already in progress."""
        if group.state != "Preparing":
            for member in group.members.values():
                _tell_sync(member, REBALANCING)
            _stop(group.timer)
            first = group.state == "Empty"
            group.state = "Preparing"
            self.num_rebalances += 1
            group.timer = self._loop.after(_GATHER_S if first else group.rebalance_s, self._complete, group)
            if first:
                return
        self._complete_if_all(group)

    def _complete_if_all(self, group: Group) -> None:
        if group.state == "Preparing" and not group.pending and all(member.join for member in group.members.values()):
            self._complete(group)

    def _complete(self, group: Group) -> None:
        """Begin the next generation. A static member that did not rejoin stays in it until its session expires."""
        _stop(group.timer)
        for member in list(group.members.values()):
            if member.join is None and member.instance is None:
                _stop(group.members.pop(member.id).expiry)
        joined = [member for member in group.members.values() if member.join]
        if group.members and not joined:
            group.timer = self._loop.after(_AGAIN_S, self._complete, group)
            return
        group.generation += 1
        group.state, group.assignment = "Syncing" if joined else "Empty", {}
        if joined:
            if group.leader not in [member.id for member in joined]:
                group.leader = joined[0].id
            group.protocol = group.members[group.leader].protocols[0][0]
        group.unsynced = set(group.members)
        group.timer = self._loop.after(group.rebalance_s, self._expire_syncs, group)
        for member in joined:
            self._joined(group, member, group.leader)

    def _expire_syncs(self, group: Group) -> None:
        """Remove the members that did not request their assignment."""
        late, group.unsynced = sorted(group.unsynced), set()
        for name in late:
            _stop(group.members[name].expiry if name in group.members else None)
            group.members.pop(name, None)
        if late:
            self._prepare(group)

    def _joined(self, group: Group, member: Member, leader: str) -> None:
        """Answer a member's join request."""
        told, member.join = member.join, None
        self._alive(group, member)
        assert told is not None, "it asked to join"
        everybody = [(each.id, each.instance, dict(each.protocols)[group.protocol]) for each in group.members.values()]
        told(0, 0, group.generation, group.protocol, leader, member.id, everybody if member.id == leader else [])

    def _replace(self, group: Group, member: Member, name: str) -> None:
        """Give a static member a new id and fence the client with the previous id."""
        if member.join is not None:
            member.join(0, FENCED, -1, "", "", member.id, [])
        _tell_sync(member, FENCED)
        if group.leader == member.id:
            group.leader = name
        group.assignment[name] = group.assignment.pop(member.id, b"")
        del group.members[member.id]
        member.id, group.members[name] = name, member

    def _alive(self, group: Group, member: Member) -> None:
        _stop(member.expiry)
        member.expiry = self._loop.after(member.session_s, self._expired, group, member)

    def _expired(self, group: Group, member: Member) -> None:
        if group.members.get(member.id) is member and member.join is None:
            self._remove(group, member.id)

    def _forget(self, group: Group, name: str) -> None:
        """Remove an id that was given out and has not joined."""
        if timer := group.pending.pop(name, None):
            timer.cancel()
            self._complete_if_all(group)

    def _remove(self, group: Group, name: str) -> None:
        member = group.members.pop(name, None)
        if member is not None:
            _stop(member.expiry)
            group.unsynced.discard(name)
            if member.join is not None:
                member.join(0, UNKNOWN_MEMBER, -1, "", "", "", [])
            self._prepare(group)


def _tell_sync(member: Member, error: int, assignment: bytes = b"") -> None:
    if member.sync is not None:
        told, member.sync = member.sync, None
        told(0, error, assignment)


def _stop(timer: "Handle | None") -> None:
    if timer is not None:
        timer.cancel()
