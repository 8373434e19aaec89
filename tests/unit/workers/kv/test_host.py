"""Blocks in host memory stay within the budget: the least recently used are evicted, and an owner's are deleted
together."""

from collections import OrderedDict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from workers.kv.host import ENTRY_BYTES, HostCache

TTL_S = 10.0
NAMES = st.integers(0, 7).map(lambda number: bytes([number]))
OWNERS = st.sampled_from(["a", "b", "c"])


def test_a_block_expires_a_fixed_time_after_its_last_use() -> None:
    host = HostCache(max_bytes=1_000, ttl_s=TTL_S)
    host.put(b"1", b"x", "a", 0)
    assert host.get(b"1", 9_999) == b"x"
    assert host.get(b"1", 19_998) == b"x"
    assert host.get(b"1", 29_998) is None
    assert host.num_bytes == 0
    host.put(b"2", bytes(100), "a", 30_000)
    host.put(b"3", bytes(100), "a", 41_000)
    assert [*host._entries] == [b"3"], "what has expired makes room"


class Host(RuleBasedStateMachine):
    """Against a slow and plain model: `kept` holds value, owner and last use, the least recently used first."""

    @initialize(max_bytes=st.integers(0, 5 * (ENTRY_BYTES + 60)))
    def start(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.host = HostCache(max_bytes=max_bytes, ttl_s=TTL_S)
        self.kept: OrderedDict[bytes, tuple[bytes, str, float]] = OrderedDict()
        self.puts = 0
        self.now = 1_000_000.0

    def forget_expired(self) -> None:
        for name, (_, _, used) in list(self.kept.items()):
            if self.now - used >= 1_000 * TTL_S:
                del self.kept[name]

    @rule(ms=st.floats(0, 6_000))
    def wait(self, ms: float) -> None:
        self.now += ms

    @rule(name=NAMES, size=st.integers(0, 120), owner=OWNERS)
    def put(self, name: bytes, size: int, owner: str) -> None:
        self.puts += 1
        value = bytes([self.puts % 256]) * size
        self.host.put(name, value, owner, self.now)
        self.forget_expired()
        self.kept.pop(name, None)
        if size + ENTRY_BYTES > self.max_bytes:
            return
        while self.model_bytes + size + ENTRY_BYTES > self.max_bytes:
            self.kept.popitem(last=False)
        self.kept[name] = (value, owner, self.now)

    @rule(name=NAMES)
    def get(self, name: bytes) -> None:
        self.forget_expired()
        expected = self.kept.get(name)
        assert self.host.get(name, self.now) == (expected[0] if expected else None)
        if expected:
            self.kept[name] = (*expected[:2], self.now)
            self.kept.move_to_end(name)

    @rule(name=NAMES)
    def look(self, name: bytes) -> None:
        """No use of it."""
        self.forget_expired()
        assert (name in self.host) >= (name in self.kept)

    @rule(owner=OWNERS)
    def erase(self, owner: str) -> None:
        self.host.erase(owner)
        for name, (_, theirs, _) in list(self.kept.items()):
            if theirs == owner:
                del self.kept[name]

    @property
    def model_bytes(self) -> int:
        return sum(len(value) + ENTRY_BYTES for value, _, _ in self.kept.values())

    @invariant()
    def the_budget_is_kept_and_nothing_else_is_given_up(self) -> None:
        host = self.host
        assert host.num_bytes == sum(len(entry.value) + ENTRY_BYTES for entry in host._entries.values())
        assert host.num_bytes <= self.max_bytes
        self.forget_expired()
        assert self.kept.keys() <= host._entries.keys()
        assert {name for names in host._owners.values() for name in names} == set(host._entries)
        assert all(host._owners.values())


TestHost = Host.TestCase
