"""Record how much machine time each class of requests (short, medium, long) and each tenant asks for and gets, and
compute from that which waiting requests are dropped first. Pure.

A request is normally dropped if it needs much machine time compared with the others. Two rules correct this, so that
none is starved: a class keeps at least half of its share of the work asked for, and the requests of a tenant that
already gets more than its fair share count as more expensive.
"""

from dataclasses import dataclass, field
from typing import Final

from workers.schedule.goodput.queue import Item

_HALF_LIFE_MS: Final = 20_000.0
_NOTHING_MS: Final = 0.001


@dataclass(slots=True)
class _Group:
    """Machine time of one class or tenant, in milliseconds.

    `offered` and `served` halve in every half-life; `kept` is that of the `waiting` requests; `count` is the number of
    requests offered, and also halves.
    """

    offered_ms: float = 0.0
    served_ms: float = 0.0
    kept_ms: float = 0.0
    count: float = 0.0
    waiting: int = 0


@dataclass(slots=True)
class Shares:
    """Machine time by group; groups are classes or tenants."""

    _groups: dict[str, _Group] = field(default_factory=dict)
    _decayed_unix_ms: float = float("-inf")

    def offer(self, group: str, cost_ms: float, now_unix_ms: float) -> None:
        """Record a request that arrived and waits until `release`."""
        self._decay(now_unix_ms)
        books = self._groups.setdefault(group, _Group())
        books.offered_ms += cost_ms
        books.kept_ms += cost_ms
        books.count += 1
        books.waiting += 1

    def release(self, group: str, cost_ms: float) -> None:
        """Record that a request with this cost does not wait any more."""
        books = self._groups[group]
        books.waiting -= 1
        books.kept_ms = books.kept_ms - cost_ms if books.waiting else 0.0  # sums of floats leave a remainder

    def serve(self, group: str, cost_ms: float) -> None:
        self._groups[group].served_ms += cost_ms

    def mean_cost(self, group: str) -> float | None:
        """Return the recent mean machine time of the group's requests, in milliseconds."""
        books = self._groups.get(group)
        return books.offered_ms / books.count if books is not None and books.count > 0 else None

    @property
    def served_share(self) -> float:
        """Return the served share of the offered work that no longer waits, 0 to 1; 1 without such work."""
        groups = self._groups.values()
        settled_ms = sum([books.offered_ms - books.kept_ms for books in groups])
        served_ms = sum([books.served_ms for books in groups])
        return served_ms / settled_ms if settled_ms > served_ms else 1.0

    def at_floor(self, floor: float, now_unix_ms: float) -> set[str]:
        """Return the groups that got less than `floor` of their share of the offered work."""
        self._decay(now_unix_ms)
        offered = sum([books.offered_ms for books in self._groups.values()])
        served = sum([books.served_ms for books in self._groups.values()])
        if len(self._groups) <= 1 or not offered:
            return set()
        return {
            name
            for name, books in self._groups.items()
            if books.served_ms < floor * served * books.offered_ms / offered
        }

    def excess(self, now_unix_ms: float) -> dict[str, float]:
        """Return by how many times each group exceeds its fair share, which is equal for all groups with requests."""
        if len(self._groups) <= 1:
            return {}
        self._decay(now_unix_ms)
        has = {name: books.served_ms + books.kept_ms for name, books in self._groups.items()}
        fair = sum(has.values()) / len(has)
        return {name: ms / fair for name, ms in has.items() if fair and ms > fair}

    def _decay(self, now_unix_ms: float) -> None:
        """Halve the sums, at most once in a tenth of a half-life, and forget groups without remaining work."""
        since_ms = now_unix_ms - self._decayed_unix_ms
        if 0 <= since_ms < _HALF_LIFE_MS / 10:
            return
        since_ms = max(since_ms, 0.0)  # the clock was set back, so the elapsed time is unknown
        factor = 0.5 ** (since_ms / _HALF_LIFE_MS)
        self._decayed_unix_ms = now_unix_ms
        for name, books in list(self._groups.items()):
            books.offered_ms *= factor
            books.served_ms *= factor
            books.count *= factor
            if not books.waiting and books.offered_ms < _NOTHING_MS:
                del self._groups[name]


# Promises a class half of its share of what the machine could do, which is somewhat more of what it actually does.
_CLASS_FLOOR: Final = 0.58
_AT_FLOOR: Final = 1e-6


class Books:
    """The accounts of classes and tenants.

    The classes' accounts exclude requests whose client set an earlier deadline than the shop promises: not serving
    those is no sign of a shortage.
    """

    def __init__(self) -> None:
        self._classes = Shares()
        self._tenants = Shares()

    def offered(self, item: Item, now_unix_ms: float) -> None:
        if item.sequence.deadline.promised is None:
            self._classes.offer(item.sequence.bucket, item.cost_ms, now_unix_ms)
        self._tenants.offer(item.sequence.session.tenant, item.cost_ms, now_unix_ms)

    def dropped(self, item: Item) -> None:
        if item.sequence.deadline.promised is None:
            self._classes.release(item.sequence.bucket, item.cost_ms)
        self._tenants.release(item.sequence.session.tenant, item.cost_ms)

    def served(self, item: Item) -> None:
        self.dropped(item)
        if item.sequence.deadline.promised is None:
            self._classes.serve(item.sequence.bucket, item.cost_ms)
        self._tenants.serve(item.sequence.session.tenant, item.cost_ms)

    def mean_cost_ms(self, bucket: str) -> float | None:
        """Return the recent mean cost of a request of the class."""
        return self._classes.mean_cost(bucket)

    @property
    def served_share(self) -> float:
        """Return the recently served share of the offered work that no longer waits."""
        return self._classes.served_share

    def at_floor(self, now_unix_ms: float) -> set[str]:
        """Return the classes below their floor."""
        return self._classes.at_floor(_CLASS_FLOOR, now_unix_ms)

    def prices(self, now_unix_ms: float) -> "Prices":
        return Prices(self.at_floor(now_unix_ms), self._tenants.excess(now_unix_ms))


class Prices:
    """The prices at one moment. Each item dropped changes the accounts, and with them the prices."""

    __slots__ = ("_excess", "_floors")

    def __init__(self, floors: set[str], excess: dict[str, float]) -> None:
        self._floors = floors
        self._excess = excess

    def price(self, bucket: str, tenant: str, cost: float) -> float:
        """Return the price of a request with this cost for its value.

        It is higher for a tenant above its fair share, and nearly zero for a class below its floor.
        """
        price = cost * self._excess.get(tenant, 1.0)
        return price * _AT_FLOOR if bucket in self._floors else price
