"""A reader that tries five times a second says once a minute that it cannot read."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable
from shared.kafka import Outage, Record
from shared.kafka.reading import retry as reading
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Cancel
from workers.intake import cancels
from workers.request.recent_cancels import RecentCancels


def test_what_stays_so_is_said_once_a_minute_and_what_is_new_at_once() -> None:
    outage = Outage("kafka replies")
    with capture_logs() as lines:
        for second in range(130):
            outage.still("no right to read the topic", 1_000.0 + second)
        outage.still("no broker", 1_130.0)
        outage.still("no broker", 1_131.0)
    assert [line["cause"] for line in lines] == ["no right to read the topic"] * 3 + ["no broker"]
    assert {(line["event"], line["what"], line["action"]) for line in lines} == {
        ("unavailable", "kafka replies", "retrying")
    }


async def test_a_worker_that_cannot_read_cancels_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_RETRY_S", 0)

    class Reader:
        reads = 0

        async def read(self) -> list[Any]:
            self.reads += 1
            if self.reads > 3:
                raise asyncio.CancelledError
            raise BrokerUnavailable("no right to read the topic")

    reader: Any = Reader()
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await cancels.read_cancels(
            reader,
            partitions=lambda: None,
            answered=set,
            cancel=lambda _: True,
            cancelled=RecentCancels(),
            adopt=lambda _: None,
        )
    said = [(line["what"], line["cause"]) for line in lines if line["event"] == "unavailable"]
    assert said == [("kafka cancels", "no right to read the topic")]


async def test_a_cancel_that_meets_a_fault_keeps_no_other_from_being_heard() -> None:
    class Reader:
        reads = 0

        async def read(self) -> list[Record]:
            self.reads += 1
            if self.reads > 1:
                raise asyncio.CancelledError
            names = ("bad", "good")
            return [Record("c", 0, at, None, msgpack_encode(Cancel(request_id=name))) for at, name in enumerate(names)]

    heard: list[str] = []

    def cancel(asked: Cancel) -> bool:
        if asked.request_id == "bad":
            raise RuntimeError("a fault of our own")
        heard.append(asked.request_id)
        return True

    reader: Any = Reader()
    with capture_logs(), pytest.raises(asyncio.CancelledError):
        await cancels.read_cancels(
            reader,
            partitions=lambda: None,
            answered=tuple,
            cancel=cancel,
            cancelled=RecentCancels(),
            adopt=lambda _: None,
        )
    assert heard == ["good"]
