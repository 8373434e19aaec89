"""A group without waiting requests and recent offers is removed from the books."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workers.schedule.goodput.books import Shares

NOW = 1_000_000.0
HOUR_MS = 3_600_000.0


class AnyBooks(RuleBasedStateMachine):
    """Requests of a few groups arrive, are served, given up and put back, in any order, while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = Shares()
        self.now = NOW
        self.waiting: list[tuple[str, float]] = []

    @rule(by_ms=st.sampled_from([1.0, 2_500.0, 60_000.0, HOUR_MS, -HOUR_MS]))
    def time_passes(self, by_ms: float) -> None:
        self.now += by_ms

    @rule(group=st.sampled_from("abc"), cost_ms=st.floats(0.001, 10_000.0))
    def offer(self, group: str, cost_ms: float) -> None:
        self.shares.offer(group, cost_ms, self.now)
        self.waiting.append((group, cost_ms))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), served=st.booleans())
    def release(self, data: st.DataObject, served: bool) -> None:
        group, cost_ms = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.shares.release(group, cost_ms)
        if served:
            self.shares.serve(group, cost_ms)

    @rule(floor=st.floats(0.0, 1.0))
    def look(self, floor: float) -> None:
        self.shares.at_floor(floor, self.now)
        assert all(times > 1 for times in self.shares.excess(self.now).values())

    @invariant()
    def who_waits_is_in_the_books(self) -> None:
        for group, books in self.shares._groups.items():
            kept = [cost_ms for other, cost_ms in self.waiting if other == group]
            assert books.waiting == len(kept)
            assert abs(books.kept_ms - sum(kept)) < 0.001
        assert {group for group, _ in self.waiting} <= self.shares._groups.keys()

    def teardown(self) -> None:
        """After every item has been served or given up and an hour has passed, no state remains."""
        for group, cost_ms in self.waiting:
            self.shares.release(group, cost_ms)
        assert all(books.kept_ms == 0 for books in self.shares._groups.values())
        self.shares.at_floor(1.0, self.now)
        self.shares.at_floor(1.0, self.now + HOUR_MS)
        assert not self.shares._groups


TestAnyBooks = AnyBooks.TestCase
