"""Which partitions of `chat.cancels` a worker reads, by those of its requests; and what prevents it."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable
from shared.kafka import Record
from shared.kafka.reading import reader as reading
from shared.records.deliveries import Partition
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Cancel
from workers.intake.cancels import read_cancels
from workers.request.recent_answers import RecentCancels


class Reader:
    """It gives what it has, one after the other, and is gone after it."""

    num_partitions = 4

    def __init__(self, *found: list[Record] | Exception) -> None:
        self.followed: list[list[int]] = []
        self._found = [*found]

    async def follow(self, partitions: Collection[int], *, since_unix_ms: int) -> None:
        self.followed.append(sorted(partitions))

    async def read(self) -> list[Record]:
        found = self._found.pop(0) if self._found else asyncio.CancelledError()
        if isinstance(found, BaseException):
            raise found
        return found


def short(*numbers: int) -> set[Partition]:
    return {("chat.requests.short", number) for number in numbers}


async def read(
    reader: Any,
    held: Collection[Partition] | None = None,
    answered: Collection[Partition] = (),
    cancel: Callable[[Cancel], bool] = lambda _: True,
) -> list[list[int]]:
    """What was followed."""
    with pytest.raises(asyncio.CancelledError):
        await read_cancels(
            reader,
            partitions=lambda: held,
            answered=lambda: answered,
            cancel=cancel,
            cancelled=RecentCancels(),
            adopt=lambda _: None,
        )
    followed: list[list[int]] = reader.followed
    return followed


@pytest.mark.parametrize(
    ("held", "answered", "followed"),
    [
        (short(1, 3) | {("chat.requests.long", 1)}, set(), [[1, 3]]),
        (short(1), short(1, 2), [[1, 2]]),
        (frozenset(), set(), [[]]),
        (None, short(2), []),
    ],
    ids=["those that it has", "an answer's whose partition has gone", "none", "as before while nobody knows"],
)
async def test_it_reads_those_of_its_requests_and_no_others(
    held: Collection[Partition] | None, answered: set[Partition], followed: list[list[int]]
) -> None:
    assert await read(Reader(), held, answered) == followed


async def test_a_worker_that_cannot_read_cancels_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_RETRY_S", 0)
    with capture_logs() as lines:
        await read(Reader(*[BrokerUnavailable("no right to read the topic")] * 3))
    said = [(line["what"], line["cause"]) for line in lines if line["event"] == "unavailable"]
    assert said == [("kafka cancels", "no right to read the topic")]


async def test_a_cancel_that_meets_a_fault_blocks_no_other() -> None:
    heard: list[str] = []

    def cancel(asked: Cancel) -> bool:
        if asked.request_id == "bad":
            raise RuntimeError("a fault of our own")
        heard.append(asked.request_id)
        return True

    names = ("bad", "good")
    records = [Record("c", 0, at, None, msgpack_encode(Cancel(request_id=name))) for at, name in enumerate(names)]
    with capture_logs():
        await read(Reader(records), cancel=cancel)
    assert heard == ["good"]
