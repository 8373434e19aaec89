"""Questions of adopted requests are read from their topics, once for all readers of a partition."""

import asyncio

import pytest

from gateway.kafka import question_reader
from gateway.kafka.question_reader import QuestionReader
from gateway.request.cursor import Place
from shared.errors import BrokerRefuses
from shared.kafka import Record
from shared.process.clock import CLOCKS
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest
from tests.support.fakes.fake_log import FakeLog

P = 3


def record(offset: int, request_id: str = "") -> Record:
    request = ChatRequest(id=request_id or f"r{offset}", session_id="s", input=f"question {offset}")
    return Record("chat.requests.short", P, offset, b"s", msgpack_encode(request))


def asking(log: FakeLog) -> QuestionReader:
    return QuestionReader(log.reader)  # type: ignore[arg-type]


async def test_concurrent_lookups_share_one_scan() -> None:
    log = FakeLog([record(offset) for offset in range(40)])
    asked = asking(log)
    places = [30, 5, 12, 39]
    found = await asyncio.gather(*(asked.read(f"r{offset}", "short", Place(P, offset)) for offset in places))
    assert found == [f"question {offset}" for offset in places]
    await log.all_closed()
    assert log.seeks == [5]


@pytest.mark.parametrize(("stands", "seeks"), [(2, [5, 2]), (30, [5])])
async def test_a_lookup_joins_a_running_scan_if_its_record_is_ahead_and_otherwise_the_next(
    stands: int, seeks: list[int]
) -> None:
    log = FakeLog([record(offset) for offset in range(40)])
    asked = asking(log)
    late: list[asyncio.Future[str]] = []

    def one_more(at: int) -> None:
        if at == 10 and not late:
            late.append(asked.read(f"r{stands}", "short", Place(P, stands)))

    log.on_read = one_more
    asked.read("r5", "short", Place(P, 5))
    assert await asked.read("r20", "short", Place(P, 20)) == "question 20"
    assert await late[0] == f"question {stands}"
    await log.all_closed()
    assert log.seeks == seeks


async def test_a_repeated_lookup_waits_for_the_same_scan() -> None:
    log = FakeLog([record(0)])
    asked = asking(log)
    first = asked.read("r0", "short", Place(P, 0))
    assert asked.read("r0", "short", Place(P, 0)) is first
    assert await first == "question 0"
    await log.all_closed()
    assert await asked.read("r0", "short", Place(P, 0)) == "question 0", "it is read again"


@pytest.mark.parametrize(
    ("records", "offset"),
    [([], 0), ([record(0)], 1), ([record(0, "another")], 0), ([Record("t", P, 0, b"s", b"\xc1", {})], 0)],
    ids=["an empty log", "behind its end", "another request", "no request"],
)
async def test_a_missing_record_gives_none(records: list[Record], offset: int) -> None:
    log = FakeLog(records)
    asked = asking(log)
    assert await asked.read("r0", "short", Place(P, offset)) == ""
    await log.all_closed()


async def test_an_outage_gives_no_record_and_a_later_lookup_finds_it() -> None:
    log = FakeLog([record(0), record(1)], fails=1)
    asked = asking(log)
    places = [asked.read(f"r{offset}", "short", Place(P, offset)) for offset in range(2)]
    assert await asyncio.gather(*places) == ["", ""]
    await log.all_closed()
    assert await asked.read("r1", "short", Place(P, 1)) == "question 1"
    await asked.stop()


async def test_a_topic_without_read_rights_is_not_tried_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", lambda: now_s)
    log = FakeLog([record(0)], fails=1, failure=BrokerRefuses("no right to read"))
    asked = asking(log)
    assert await asked.read("r0", "short", Place(P, 0)) == ""
    await log.all_closed()
    assert await asked.read("r0", "short", Place(P, 0)) == ""
    assert log.seeks == [0]
    assert await asked.read("r0", "medium", Place(P, 0)) == "question 0", "another topic has its own rights"
    now_s += question_reader._BARRED_S
    assert await asked.read("r0", "short", Place(P, 0)) == "question 0"
    await asked.stop()


async def test_a_log_that_makes_no_progress_is_given_up_and_retried_by_later_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_reader, "_ONE_WAY_S", 0.1)
    log = FakeLog([record(1), record(1)])
    asked = asking(log)
    late: list[asyncio.Future[str]] = []

    def still(at: int) -> None:  # its end offset was seen, but never arrives
        if not late:
            late.append(asked.read("r0", "short", Place(P, 0)))
            log.records.clear()
            asyncio.get_running_loop().call_later(0.05, log.records.extend, [record(0)])

    log.on_read = still
    async with asyncio.timeout(5):
        assert await asked.read("r1", "short", Place(P, 1)) == ""
        assert await late[0] == "question 0"
    await log.all_closed()


async def test_two_of_one_place_the_later_counts() -> None:
    """A topic was recreated."""
    asked = asking(FakeLog([record(0)]))
    before = asked.read("another", "short", Place(P, 0))
    assert await asked.read("r0", "short", Place(P, 0)) == "question 0"
    assert await before == ""


async def test_a_stopped_reader_reports_no_missing_question() -> None:
    """It would be answered "busy", although another gateway can read it."""
    log = FakeLog([record(0)])
    asked = asking(log)
    waiting = asked.read("r0", "short", Place(P, 0))
    await asyncio.sleep(0)
    await asked.stop()
    assert waiting.cancelled()
    assert asked.read("r0", "short", Place(P, 0)).cancelled()
    assert log.open_readers == 0
