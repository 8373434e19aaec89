"""A late record takes no room; served records are begun bucket by bucket; records without room wait."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.kafka import Record
from shared.process.clock import now_unix_ms
from tests.support.builders.intake import IntakeBench
from tests.support.builders.worker import LONG, SHORT, TOPIC, order
from tests.support.fakes.gateways import quiet
from tests.support.hostile.poison_records import packed
from workers.intake.reader import ClockSkew


def record(offset: int, *, topic: str = SHORT, late_ms: int | None = None, replies: str = "chat.replies") -> Record:
    """Return a record that is to be served unless it is late."""
    headers = {"ce_id": f"r{offset}".encode(), "reply-topic": replies.encode()}
    if late_ms is not None:
        headers["deadline-unix-ms"] = str(int(now_unix_ms()) - late_ms).encode()
    return Record(topic, 0, offset, b"demo/s", b"\xc1 never opened", headers)


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_what_is_passed_over_is_not_committed_before_what_is_owed_an_answer_and_that_is_counted_once() -> None:
    bench, late, crm = IntakeBench(known=[(TOPIC, 4)]), {"late_ms": 5_000}, "chat.replies.crm"
    before = counted("replyline_worker_outcomes_total", outcome="missed")
    owed = [record(at, replies=crm, **late) for at in (3, 4)]
    bench.intake._sorting.sort([record(0, **late), record(1), record(2, **late), *owed])
    assert bench.offsets.committable() == {TOPIC: 1}
    bench.intake._sorting.sort(owed)  # read again
    [(target, done, origin)] = bench.answered
    assert (target, done.request_id, origin) == ((crm, None), "r3", (TOPIC, 3))
    assert counted("replyline_worker_outcomes_total", outcome="missed") == before + 1, "the last has its own answer"
    bench.offsets.done(TOPIC, 1)
    assert bench.offsets.committable() == {TOPIC: 3}
    bench.offsets.done(*origin)
    assert bench.offsets.committable() == {TOPIC: 4}


def test_only_the_flooded_topic_rests() -> None:
    bench = IntakeBench()
    bench.intake._sorting.sort([*(record(offset) for offset in range(8)), record(0, topic=LONG)])
    bench.intake._rest()
    assert bench.at_rest == {SHORT}


async def test_a_request_is_as_old_as_its_records_arrival() -> None:
    """A producer whose clock is ahead keeps no question past an erasure that follows it."""
    bench, now = IntakeBench(), int(now_unix_ms())
    value = packed(id="r0", created_unix_ms=now + 60_000)
    bench.intake._sorting.sort([Record(SHORT, 0, 0, b"k", value, arrived_unix_ms=now - 5_000)])
    bench.intake._begin_what_fits()
    for _ in range(50):
        await asyncio.sleep(0)
    assert [order.generation for order in bench.orders] == [now - 5_001]


async def test_after_a_rebalance_what_is_done_or_served_is_let_alone_and_the_rest_is_read_again() -> None:
    """This holds if its deadline has passed before the rebalance ends: a served request has its own end, the rest is
    skipped."""
    bench, crm = IntakeBench(away=True), "chat.replies.crm"
    bench.intake._sorting.sort([record(0, replies=crm)])
    bench.intake._begin_what_fits()
    bench.intake._sorting.sort([record(1), record(2), record(3), record(0, topic=LONG)])
    bench.offsets.done(TOPIC, 2)
    bench.rebalance()
    assert (bench.parked, bench.offsets.num_open) == (1, 4), (
        "the other topic's records stay, and none loses its position"
    )
    bench.intake._sorting.sort(
        [record(0, replies=crm, late_ms=10), record(1, late_ms=5_000), record(2), record(3), record(4)]
    )
    assert (bench.parked, bench.answered) == (3, [])
    assert bench.offsets.committable() == {}
    bench.lost = [TOPIC]
    bench.rebalance()
    assert (bench.parked, bench.offsets.num_open) == (1, 1)
    await bench.intake.finish(0)


@pytest.mark.parametrize("looks", [3, float("inf")])
async def test_an_answer_that_has_nothing_for_who_asks_again_is_let_out_first(looks: float) -> None:
    """Until the deadline: where Kafka is away it does not leave."""
    bench, now = IntakeBench(looks=looks), now_unix_ms()
    asked = order(now=now, first_token_unix_ms=int(now) + (30 if looks > 3 else 3_000))
    async with asyncio.timeout(5):
        assert await bench.intake._repeated(asked, (TOPIC, 1)) == (looks > 3)


def test_a_clock_that_is_ahead_is_counted_each_time_and_told_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """By more than a second; a record that has waited says nothing about clocks. A clock set back is logged again."""
    skew, now, before = ClockSkew(), 1_800_000_000_000, counted("replyline_worker_odd_requests_total", what="clock")
    ahead = [(0, 1_000), (0, -60_000), (0, 2_000), (1_000, 300_000), (59_999, 2_000), (60_000, 2_000), (-1_000, 2_000)]
    told = []
    for later_ms, by_ms in ahead:
        skew.check(record(0), now + later_ms + by_ms, now + later_ms)
        told.append("clock_skew" in capsys.readouterr().out)
    assert told == [False, False, True, False, False, True, True]
    assert counted("replyline_worker_odd_requests_total", what="clock") == before + 5


async def test_a_record_that_cannot_be_put_aside_holds_up_no_shutdown() -> None:
    """Without a broker; it is not committed, and read again."""
    bench = IntakeBench(away=True)
    bench.intake._sorting.sort([record(0)])
    bench.intake._begin_what_fits()
    async with asyncio.timeout(5):
        await bench.intake.finish(0.01)
    assert (len(bench.intake._processor.busy), bench.offsets.num_open) == (0, 1)


# --- what is set aside


async def test_unwritable_dead_letters_block_no_other_record() -> None:
    bench = IntakeBench(away=True)
    with capture_logs():
        for number in range(10):
            await bench.take(*(packed(id=f"bad-{number}-{each}", input="long") for each in range(8)))
        await bench.take(packed(id="good", input="hello"))
        for _ in range(10):
            bench.intake._begin_what_fits()
            await quiet()
    assert bench.begun[-1] == "good"
    await bench.intake.finish(0)
    assert bench.offsets.num_open == 81, "no offset is committed"


async def test_headers_at_which_the_intake_stumbles_set_one_record_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at before anything is opened, many records at a time."""
    bench = IntakeBench()
    fate = bench.intake._sorting.triage.classify

    def stumble(headers: Any, key: bytes | None, now: float) -> Any:
        if headers.get("x") == b"bad":
            raise KeyError("a fault of our own")
        return fate(headers, key, now)

    monkeypatch.setattr("workers.intake.triage.Triage.classify", lambda _, *given: stumble(*given))
    with capture_logs():
        records = [Record(SHORT, 0, at, b"k", packed(id=f"r{at}"), {"x": x}) for at, x in enumerate((b"", b"bad", b""))]
        bench.intake._sorting.sort(records)
        bench.intake._begin_what_fits()
        await quiet()
    assert bench.begun == ["r0", "r2"]
    [letter] = bench.letters
    assert letter.headers["dead-letter-origin"] == b"chat.requests.short/0/1"
    await bench.intake.finish(0)
