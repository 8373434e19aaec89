"""The questions of adopted requests are read from their topics, once for all who wait for a partition."""

import asyncio

import pytest
from fake_log import FakeLog

from gateway import questions
from gateway.cursor import Place
from gateway.questions import Questions
from shared.codec import msgpack_encode
from shared.kafka import Record
from shared.messages import ChatRequest

P = 3


def record(offset: int, request_id: str = "") -> Record:
    request = ChatRequest(id=request_id or f"r{offset}", session_id="s", input=f"question {offset}")
    return Record("chat.requests.short", P, offset, b"s", msgpack_encode(request))


def asking(log: FakeLog) -> Questions:
    return Questions(log.reader)  # type: ignore[arg-type]


async def test_all_who_come_together_are_served_by_one_way_through() -> None:
    log = FakeLog([record(offset) for offset in range(40)])
    asked = asking(log)
    places = [30, 5, 12, 39]
    found = await asyncio.gather(*(asked.ask(f"r{offset}", "short", Place(P, offset)) for offset in places))
    assert found == [f"question {offset}" for offset in places]
    await log.all_closed()
    assert log.seeks == [5]


async def test_who_comes_while_it_reads_is_served_by_the_next() -> None:
    log = FakeLog([record(offset) for offset in range(40)])
    asked = asking(log)
    late: list[asyncio.Future[str]] = []

    def one_more(at: int) -> None:
        if at == 25 and not late:
            late.append(asked.ask("r2", "short", Place(P, 2)))

    log.on_read = one_more
    assert await asked.ask("r25", "short", Place(P, 25)) == "question 25"
    assert await late[0] == "question 2"
    await log.all_closed()
    assert log.seeks == [25, 2]


async def test_whoever_asks_again_while_it_is_read_waits_for_the_same() -> None:
    log = FakeLog([record(0)])
    asked = asking(log)
    first = asked.ask("r0", "short", Place(P, 0))
    assert asked.ask("r0", "short", Place(P, 0)) is first
    assert await first == "question 0"
    await log.all_closed()
    assert await asked.ask("r0", "short", Place(P, 0)) == "question 0", "it is read anew"


@pytest.mark.parametrize(
    ("records", "offset"),
    [([], 0), ([record(0)], 1), ([record(0, "another")], 0), ([Record("t", P, 0, b"s", b"\xc1", {})], 0)],
    ids=["an empty log", "behind its end", "another request", "no request"],
)
async def test_what_does_not_stand_there_is_nothing(records: list[Record], offset: int) -> None:
    log = FakeLog(records)
    asked = asking(log)
    assert await asked.ask("r0", "short", Place(P, offset)) == ""
    await log.all_closed()


async def test_nothing_is_had_of_a_broker_that_is_away_and_all_of_it_when_it_is_back() -> None:
    log = FakeLog([record(0), record(1)], fails=1)
    asked = asking(log)
    places = [asked.ask(f"r{offset}", "short", Place(P, offset)) for offset in range(2)]
    assert await asyncio.gather(*places) == ["", ""]
    await log.all_closed()
    assert await asked.ask("r1", "short", Place(P, 1)) == "question 1"
    await asked.stop()


async def test_a_log_that_stands_still_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ONE_WAY_S", 0.05)
    log = FakeLog([record(0)])
    log.on_read = lambda _: log.records.clear()  # its end was seen, and never comes
    async with asyncio.timeout(5):
        assert await asking(log).ask("r0", "short", Place(P, 0)) == ""
    await log.all_closed()


async def test_stopped_whoever_waits_is_let_go() -> None:
    log = FakeLog([record(0)])
    asked = asking(log)
    waiting = asked.ask("r0", "short", Place(P, 0))
    await asyncio.sleep(0)
    await asked.stop()
    assert await waiting == ""
    assert log.open_readers == 0
