"""A report that cannot be taken keeps no other from being heard."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from shared.kafka import Record
from shared.records.log_readers import read_reports


async def test_the_report_after_one_that_cannot_be_taken_is_heard() -> None:
    heard: list[str] = []

    def reported(worker_id: str, _: object) -> None:
        if worker_id == "bad":
            raise LookupError(worker_id)
        heard.append(worker_id)

    records = [Record("chat.workers", 0, offset, name.encode(), None) for offset, name in enumerate(("bad", "good"))]
    with pytest.raises(asyncio.CancelledError):
        await read_reports(AsyncMock(read=AsyncMock(side_effect=[records, asyncio.CancelledError])), reported)
    assert heard == ["good"]
