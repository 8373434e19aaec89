"""Decide which member of a consumer group reads which partitions. Pure.

Partitions with the same number stay together: a key maps to the same number in every topic with the same number of
partitions, so all questions of a conversation are read by one member, in every topic. Members keep their partitions as
far as the shares stay even: a joining member takes partitions from the others, a leaving member's go to the others, and
no other partition moves.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Partitions = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of the group.

    Attributes:
        topics: its subscription.
        held: its last assignment, by topic.
        round: the round of that assignment. If two members claim a partition, the one with the later round owned it
            last.
    """

    topics: frozenset[str]
    held: Partitions = field(default_factory=dict)
    round: int = 0


def assign(num_partitions: Mapping[str, int], members: Mapping[str, GroupMember]) -> dict[str, dict[str, list[int]]]:
    """Return the assigned partitions by member and topic. Topics without readers or of unknown size are left out."""
    assigned: dict[str, dict[str, list[int]]] = {name: {} for name in members}
    loads: Counter[str] = Counter()
    last = _last_readers(members)
    for topics, num, readers in _alike(num_partitions, members):
        before = [_most_common(last.get((topic, number)) for topic in topics) for number in range(num)]
        for number, name in enumerate(_share_out(before, {name: loads[name] for name in readers}, len(topics))):
            loads[name] += len(topics)
            for topic in topics:
                assigned[name].setdefault(topic, []).append(number)
    return assigned


def _last_readers(members: Mapping[str, GroupMember]) -> dict[tuple[str, int], str]:
    """Return the last reader of each partition."""
    last: dict[tuple[str, int], str] = {}
    for name, member in sorted(members.items(), key=lambda item: (item[1].round, item[0])):
        for topic, numbers in member.held.items():
            last.update(dict.fromkeys(((topic, number) for number in numbers), name))
    return last


def _alike(
    num_partitions: Mapping[str, int], members: Mapping[str, GroupMember]
) -> list[tuple[list[str], int, tuple[str, ...]]]:
    """Group topics that have the same readers and the same number of partitions; those with the fewest readers come
    first."""
    groups: defaultdict[tuple[tuple[str, ...], int], list[str]] = defaultdict(list)
    for topic, number in sorted(num_partitions.items()):
        readers = tuple(sorted(name for name, member in members.items() if topic in member.topics))
        if readers:
            groups[readers, number].append(topic)
    order = sorted(groups.items(), key=lambda group: (len(group[0][0]), group[1]))
    return [(topics, number, readers) for (readers, number), topics in order]


def _most_common(readers: Iterable[str | None]) -> str | None:
    counts = Counter(reader for reader in readers if reader is not None)
    return max(sorted(counts), key=lambda name: counts[name], default=None)


def _share_out(before: Sequence[str | None], loads: Mapping[str, int], weight: int) -> list[str]:
    """Return the reader of each partition number.

    Args:
        before: the last reader of each number; None if there was none.
        loads: partitions that each reader already has.
        weight: partitions for each number.
    """
    held = Counter(name for name in before if name is not None)
    left = _even_shares(len(before), held, loads, weight)
    kept: dict[int, str] = {}
    for number, name in enumerate(before):
        if name is not None and left[name] > 0:
            kept[number] = name
            left[name] -= 1
    others = left.elements()
    return [kept.get(number) or next(others) for number in range(len(before))]


def _even_shares(num: int, held: Counter[str], loads: Mapping[str, int], weight: int) -> Counter[str]:
    """Return how many numbers each reader gets, as even as possible. On a tie the reader that already has one keeps
    it."""
    shares: Counter[str] = Counter()
    heap = [(load, not held[name], name) for name, load in loads.items()]
    heapq.heapify(heap)
    for _ in range(num):
        load, _, name = heap[0]
        shares[name] += 1
        heapq.heapreplace(heap, (load + weight, held[name] <= shares[name], name))
    return shares
