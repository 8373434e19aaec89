"""Keep what classes and tenants were offered, keep and were served, and price what giving up one of theirs is worth.

Two floors bend value for cost: a class keeps at least half of its share of what is offered, and a tenant pays more for
what exceeds its fair share.
"""

from typing import Final

from workers.schedule.goodput.item import Item
from workers.schedule.goodput.shares import Shares

# Half of its share of all that the machine could do is what a class is promised: somewhat more of what it does.
_CLASS_FLOOR: Final = 0.58
_AT_FLOOR: Final = 1e-6


class Books:
    """Learns of each item when it comes, when it is served, and when it leaves without. The classes' books leave out
    requests whose client asks for less time than the shop promises: what of theirs is not served is no shortage."""

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
        """Return the mean cost of a request of the class, lately."""
        return self._classes.mean_cost(bucket)

    @property
    def served_share(self) -> float:
        """Return how much was served lately of what was offered and does not wait."""
        return self._classes.served_share

    def at_floor(self, now_unix_ms: float) -> set[str]:
        """Return the classes that have less than their floor."""
        return self._classes.at_floor(_CLASS_FLOOR, now_unix_ms)

    def prices(self, now_unix_ms: float) -> "Prices":
        return Prices(self.at_floor(now_unix_ms), self._tenants.excess(now_unix_ms))


class Prices:
    """The prices of one moment: each item dropped changes the books, and with them the prices."""

    __slots__ = ("_excess", "_floors")

    def __init__(self, floors: set[str], excess: dict[str, float]) -> None:
        self._floors = floors
        self._excess = excess

    def of(self, bucket: str, tenant: str, cost: float) -> float:
        """Return the price of what costs so much for its value: more for a tenant with too much, next to nothing at a
        class's floor."""
        price = cost * self._excess.get(tenant, 1.0)
        return price * _AT_FLOOR if bucket in self._floors else price
