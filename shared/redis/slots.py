"""Which node of a Redis Cluster serves which key: pure.

A cluster has 16,384 slots, and a key the slot of its hash tag. `CLUSTER SLOTS` tells whose they are; a node that is
asked for a slot that moved answers with its new node (MOVED). See the Redis Cluster specification.
"""

from binascii import crc_hqx
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

_SLOTS: Final = 16_384


class Node(NamedTuple):
    host: str
    port: int


def slot_of(key: str) -> int:
    """By the hash tag: what stands between the first `{` and the next `}`, if anything does; else the whole key."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if opened and closed and tag else key).encode(), 0) % _SLOTS


class SlotMap:
    """As it was told last; until then every slot is the `seed`'s."""

    def __init__(self, seed: Node) -> None:
        self._owners = [seed] * _SLOTS

    def of(self, key: str) -> Node:
        return self._owners[slot_of(key)]

    def nodes(self) -> Iterator[Node]:
        """Each that serves something."""
        return iter(dict.fromkeys(self._owners))

    def moved(self, slot: int, node: Node) -> None:
        self._owners[slot] = node

    def learn(self, reply: Iterable[Any], told_by: Node) -> None:
        """What `CLUSTER SLOTS` answers. A node that does not know its own name is the one that was asked."""
        for first, last, master, *_ in reply:
            host = master[0].decode() if isinstance(master[0], bytes) else master[0]
            node = Node(host or told_by.host, int(master[1]))
            self._owners[first : last + 1] = [node] * (last + 1 - first)
