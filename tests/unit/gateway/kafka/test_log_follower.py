"""Another gateway's log is read from where an adopted answer begins, once for all concurrent readers."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from gateway.kafka import log_follower
from gateway.kafka.log_follower import LogFollower
from gateway.request.cursor import Place
from shared.kafka import Record
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Reply, ReplyDelta
from tests.support.builders.wire import delta
from tests.support.fakes.fake_log import FakeLog
from tests.support.fakes.gateways import until

P = 3
Join = Callable[[Place, str, str], "asyncio.Future[None]"]


def record(offset: int, session_id: str) -> Record:
    value = msgpack_encode(delta("x", offset, request_id=f"r-{session_id}", session_id=session_id))
    return Record("chat.replies", P, offset, session_id.encode(), value)


def follow(log: FakeLog) -> tuple[LogFollower, Join, list[tuple[str, int]]]:
    told: list[tuple[str, int]] = []

    def received(replies: list[Reply]) -> None:
        told.extend((reply.session_id, reply.offset) for reply in replies if isinstance(reply, ReplyDelta))

    follower = LogFollower(log.reader)  # type: ignore[arg-type]
    return follower, partial(follower.join, receive=received), told


async def test_an_answers_log_is_delivered_from_its_position_until_it_leaves_without_other_sessions() -> None:
    log = FakeLog([record(offset, "other" if offset == 3 else "s") for offset in range(5)])
    follower, join, told = follow(log)
    await join(Place(P, 2), "s", "r")
    assert told == [("s", 2), ("s", 4)]
    log.records.append(record(5, "s"))
    await until(lambda: told[-1] == ("s", 5))
    follower.leave(P, "r")
    await log.all_closed()


async def test_readers_that_arrive_during_a_read_share_one_later_rewind() -> None:
    """The log is read to its end first, so new readers do not starve earlier ones."""
    log = FakeLog([record(offset, "s" if offset % 2 else "t") for offset in range(40)])
    follower, join, told = follow(log)
    late: list[asyncio.Future[None]] = []

    def one_more(at: int) -> None:
        if at == 30 and not late:
            late.extend(join(Place(P, 10 + number), "t", f"t{number}") for number in range(10))

    log.on_read = one_more
    await join(Place(P, 20), "s", "r")
    await asyncio.gather(*late)
    assert log.seeks == [20, 10]
    assert {offset for session_id, offset in told if session_id == "t"} >= set(range(10, 40, 2))
    await follower.stop()


async def test_an_outage_of_the_broker_is_outlived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_RETRY_S", 0)
    log = FakeLog([record(0, "s")], fails=1)
    follower, join, told = follow(log)
    await join(Place(P, 0), "s", "r")
    assert told == [("s", 0)]
    await follower.stop()
    assert log.open_readers == 0


async def test_a_reader_that_leaves_early_is_not_waited_for() -> None:
    log = FakeLog([record(0, "s")])
    follower, join, told = follow(log)
    waiting = join(Place(P, 0), "s", "r")
    follower.leave(P, "r")
    await asyncio.wait_for(waiting, 5)
    assert told == []
    follower.leave(P, "r")
    await log.all_closed()


async def test_a_reader_that_leaves_during_an_outage_is_released_and_no_retry_remains() -> None:
    log = FakeLog([record(0, "s")], absent=asyncio.Event())
    follower, join, _ = follow(log)
    waiting = join(Place(P, 0), "s", "r")
    await asyncio.sleep(0)
    assert log.open_readers == 1
    follower.leave(P, "r")
    assert waiting.done()
    await log.all_closed()


async def test_a_session_is_followed_while_one_of_its_answers_is() -> None:
    log = FakeLog([record(offset, "s") for offset in range(3)])
    follower, join, told = follow(log)
    for response_id in ("r", "r", "q"):
        await join(Place(P, 0), "s", response_id)
    follower.leave(P, "r")
    told.clear()
    log.records.append(record(3, "s"))
    await until(lambda: told)
    follower.leave(P, "q")
    await log.all_closed()


async def test_old_cursors_have_the_log_read_again_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader soon after its gateway's death has little to read, and does not wait."""
    now_s = 100.0
    monkeypatch.setattr(log_follower, "monotonic_s", lambda: now_s)
    monkeypatch.setattr(log_follower, "_BACK_RECORDS_PER_S", 10)
    log = FakeLog([record(offset, "s") for offset in range(40)])
    follower, join, _ = follow(log)
    for number, start in enumerate((39, 38, 0)):  # 0.1, 0.2 and, at most, 1 s
        await join(Place(P, start), "s", f"r{number}")
        now_s += 0.25
    many = [join(Place(P, 0), "s", f"flood{number}") for number in range(50)]
    join(Place(P + 1, 39), "s", "of another partition")
    await until(lambda: len(log.seeks) == 4)
    for _ in range(200):
        await asyncio.sleep(0)
    assert log.seeks == [39, 38, 0, 39], "they wait"
    now_s += 0.8
    await asyncio.gather(*many)
    assert log.seeks == [39, 38, 0, 39, 0]
    await follower.stop()
