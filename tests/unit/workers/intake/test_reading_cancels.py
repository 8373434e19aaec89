"""Which partitions of `chat.cancels` a worker reads, by those of the requests that it has."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from shared.records.deliveries import Partition
from workers.intake.cancels import read_cancels
from workers.request.recent_cancels import RecentCancels


class Reader:
    num_partitions = 4

    def __init__(self, reads: int) -> None:
        self.followed: list[list[int]] = []
        self._reads = reads

    async def follow(self, partitions: Collection[int], *, since_unix_ms: int) -> None:
        self.followed.append(sorted(partitions))

    async def read(self) -> list[Any]:
        self._reads -= 1
        if self._reads < 0:
            raise asyncio.CancelledError
        return []


def short(*numbers: int) -> set[Partition]:
    return {("chat.requests.short", number) for number in numbers}


async def followed(held: Collection[Partition] | None, answered: set[Partition]) -> list[list[int]]:
    reader: Any = Reader(0)
    with pytest.raises(asyncio.CancelledError):
        await read_cancels(
            reader,
            partitions=lambda: held,
            answered=lambda: answered,
            cancel=lambda _: True,
            cancelled=RecentCancels(),
            adopt=lambda _: None,
        )
    found: list[list[int]] = reader.followed
    return found


async def test_it_reads_those_that_it_has_and_no_others() -> None:
    assert await followed(short(1, 3) | {("chat.requests.long", 1)}, set()) == [[1, 3]]


async def test_it_reads_on_of_an_answer_whose_partition_has_gone_to_another() -> None:
    assert await followed(short(1), short(1, 2)) == [[1, 2]]


async def test_with_no_partition_it_reads_none() -> None:
    assert await followed(frozenset(), set()) == [[]]


async def test_while_nobody_knows_it_reads_what_it_read_before() -> None:
    assert await followed(None, short(2)) == []
