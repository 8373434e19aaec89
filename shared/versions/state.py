"""The state of the model registry: which version each alias (champion, canary, …) names, and which share of the
conversations each lane gets. Pure.

A move is a record that replaces the whole state and has a number, its epoch. If two authors write the same epoch, the
first one in the log is valid and the other is ignored.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from shared.wire.fields import Count, Revision
from shared.wire.lanes import CHAMPION, LANES, Lane
from shared.wire.session_key import SessionKey

Alias = Lane | Literal["previous"]
ALIASES: Final[tuple[Alias, ...]] = (*LANES, "previous")
Rung = Literal["champion", "light", "cpu", "faq"]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]

_POINTS: Final = 2**64
_TENANT: Final = "tenant:"


class Rule(Struct, frozen=True, kw_only=True):
    """Assign conversations to the canary. The `salt` gives each conversation a point in [0, 1); those below its share
    go to the canary. With `control`, as many from the other end go to the control lane: to the champion's version, on
    workers started like the canary's.

    `shares` holds how far each class has been promoted: a bucket, `lang:zh`. One share counts for a whole conversation,
    since its turns are of several classes: the least of them and of `share`. `tenant:acme` replaces `share` for that
    tenant. A larger share takes no conversation off the canary."""

    salt: str
    share: Share
    shares: dict[str, Share] = field(default_factory=dict)
    control: bool = False

    def lane(self, session: SessionKey) -> Lane:
        """Return the lane of all requests of a conversation."""
        share, point = self.share_of(session.tenant), self.point(session)
        if point < share:
            return "canary"
        return "control" if self.control and point >= 1.0 - share else CHAMPION

    def share_of(self, tenant: str) -> float:
        """Return the one share of each of a tenant's conversations."""
        promoted = [share for name, share in self.shares.items() if not name.startswith(_TENANT)]
        return min([self.shares.get(_TENANT + tenant, self.share), *promoted])

    def point(self, session: SessionKey) -> float:
        """Return a conversation's point in [0, 1)."""
        named = f"{self.salt}\0{session.tenant}\0{session.session_id}".encode()
        return int.from_bytes(blake2b(named, digest_size=8).digest()) / _POINTS


class State(Struct, frozen=True, kw_only=True):
    """`aliases` point at versions by id. `loading` is, by lane, the version that its workers load in addition to the
    one they serve. The state holds from `effective_unix_ms`. `rung` is where an operator holds the ladder.
    `shadow_share` of the champion's traffic is asked of the shadow lane again."""

    epoch: Count = 0
    aliases: dict[Alias, Revision] = field(default_factory=dict)
    loading: dict[Lane, Revision] = field(default_factory=dict)
    rule: Rule | None = None
    rung: Rung | None = None
    shadow_share: Share = 0.0
    effective_unix_ms: Count = 0

    def lane(self, session: SessionKey) -> Lane:
        """Return the lane that the rule sends a conversation to."""
        return self.rule.lane(session) if self.rule is not None and "canary" in self.aliases else CHAMPION

    def revision(self, lane: Lane) -> Revision | None:
        """Return the version that requests of a lane name; None where no alias does. The control's is the champion's
        unless it has an alias."""
        return self.aliases.get(lane) or (self.aliases.get(CHAMPION) if lane == "control" else None)

    def serves(self, lane: Lane) -> bool:
        """Return whether a lane has a version to answer by; that of the control lane is the champion's."""
        return lane in self.aliases or (lane == "control" and self.rule is not None and self.rule.control)


class Move(Struct, frozen=True, kw_only=True, tag="move"):
    """A change of the state: its author, its reason, and the numbers that it follows from. If the state holds from a
    later time, `interim` is the one that holds before that time; None: that of the move before."""

    state: State
    author: str
    reason: str
    unix_ms: Count
    numbers: dict[str, float] = field(default_factory=dict)
    interim: State | None = None

    @property
    def epoch(self) -> int:
        return self.state.epoch


def named(aliases: Mapping[Alias, Revision], revision: Revision) -> list[Alias]:
    """Return the aliases that point at a version."""
    return [alias for alias, pointed in aliases.items() if pointed == revision]
