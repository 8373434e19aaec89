"""A report that cannot be decoded does not block the next one."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from shared.kafka import Record
from shared.records.log_readers import read_reports


async def test_the_report_after_an_undecodable_one_is_received() -> None:
    heard: list[str] = []

    def reported(worker_id: str, _: object) -> None:
        if worker_id == "bad":
            raise LookupError(worker_id)
        heard.append(worker_id)

    records = [Record("chat.workers", 0, offset, name.encode(), None) for offset, name in enumerate(("bad", "good"))]
    with pytest.raises(asyncio.CancelledError):
        await read_reports(AsyncMock(read=AsyncMock(side_effect=[records, asyncio.CancelledError])), reported)
    assert heard == ["good"]
