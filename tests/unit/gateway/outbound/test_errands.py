"""Errands of one conversation are carried out in order, and delay no other conversation's."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from gateway.outbound.outbound import Errands
from shared.kafka import Record
from tests.support.fakes.gateways import until
from tests.unit.shared.records.test_commits import FakeReader

TOPIC = "chat.posts"


class Reader(FakeReader):
    """A group's reader of these records."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__()
        self.records = records

    async def start(self, part: Any) -> None: ...
    async def stop(self) -> None: ...

    async def read(self, *, timeout_ms: int, max_records: int) -> list[Record]:
        await asyncio.sleep(0)
        found, self.records = self.records[:max_records], self.records[max_records:]
        return found or await asyncio.Future()


@pytest.mark.parametrize("flooded", [1, 3])
async def test_one_conversations_errands_delay_no_other_conversation(flooded: int) -> None:
    keys = [f"flooded-{number % flooded}".encode() for number in range(450)] + [b"another"]
    desk = asyncio.Event()
    done = defaultdict[bytes | None, list[int]](list)

    async def carry_out(record: Record, *, again: bool) -> None:
        assert not again
        if record.key != b"another":
            await desk.wait()
        done[record.key].append(record.offset)

    reader: Any = Reader([Record(TOPIC, 0, offset, key, b"") for offset, key in enumerate(keys)])
    errands = Errands("chatwoot", reader, carry_out)
    running = asyncio.ensure_future(errands.run())
    try:
        await until(lambda: done[b"another"])
        assert done.keys() == {b"another"}
        desk.set()
        await until(lambda: sum(map(len, done.values())) == len(keys))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await errands.leave()
    assert all(offsets == sorted(offsets) for offsets in done.values())
    assert reader.offsets[TOPIC, 0] == len(keys)
