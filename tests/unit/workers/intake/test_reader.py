"""What is too late takes no room; what is served is begun bucket by bucket; what fits nowhere rests."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.kafka import Record
from shared.process.clock import now_unix_ms
from shared.records import dead_letters as deadletters
from shared.wire.messages import Erase
from shared.wire.session_key import SessionKey
from tests.support.builders.worker import order
from tests.support.fakes.gateways import quiet
from tests.support.fakes.intake_bench import LONG, SHORT, Bench, Commits, Producer, Worker
from tests.support.hostile.poison_records import packed
from workers.request.reply_publisher import Target

EXTERNAL: Target = ("chat.replies.external", None)


def record(offset: int, *, topic: str = SHORT, late_ms: int | None = None, replies: str = "chat.replies") -> Record:
    """One to be served where it is not late."""
    headers = {"ce_id": f"r{offset}".encode(), "reply-topic": replies.encode()}
    if late_ms is not None:
        headers["deadline-unix-ms"] = str(int(now_unix_ms()) - late_ms).encode()
    return Record(topic, 0, offset, b"demo/s", b"\xc1 never opened", headers)


def test_what_is_passed_over_is_not_committed_before_what_is_owed_an_answer() -> None:
    bench = Bench()
    late = {"late_ms": 5_000}
    bench.intake._sort([record(0, **late), record(1), record(2, **late), record(3, replies="chat.replies.crm", **late)])
    assert bench.offsets.committable() == {(SHORT, 0): 1}
    [(target, done, origin)] = bench.worker.answered
    assert (target, done.request_id, origin) == (("chat.replies.crm", None), "r3", ((SHORT, 0), 3))
    bench.offsets.done((SHORT, 0), 1)
    assert bench.offsets.committable() == {(SHORT, 0): 3}
    bench.offsets.done(*origin)
    assert bench.offsets.committable() == {(SHORT, 0): 4}


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_an_answer_without_being_opened_is_counted_once_and_the_promise_as_missed() -> None:
    def counts() -> list[float]:
        return [
            counted("infer_total", status="incomplete", reason="deadline"),
            counted("replyline_worker_outcomes_total", outcome="missed"),
        ]

    bench = Bench(worker=Worker(known=[((SHORT, 0), 2)]))
    before = counts()
    bench.intake._sort([record(0), *(record(at, replies="chat.replies.crm", late_ms=10) for at in (1, 2))])
    assert [origin for _, _, origin in bench.worker.answered] == [((SHORT, 0), 1)]
    assert counts() == [each + 1 for each in before], "the third has an answer of its own"


def test_a_clock_that_is_ahead_is_counted_each_time_and_told_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """By more than a second; a record that has waited says nothing of clocks. A clock set back tells anew."""
    bench, now, before = Bench(), 1_800_000_000_000, counted("replyline_worker_odd_requests_total", what="clock")
    ahead = [(0, 1_000), (0, -60_000), (0, 2_000), (1_000, 300_000), (59_999, 2_000), (60_000, 2_000), (-1_000, 2_000)]
    told = []
    for later_ms, by_ms in ahead:
        bench.intake._check_clock(record(0), now + later_ms + by_ms, now + later_ms)
        told.append("clock_skew" in capsys.readouterr().out)
    assert told == [False, False, True, False, False, True, True]
    assert counted("replyline_worker_odd_requests_total", what="clock") == before + 5


def test_only_the_flooded_topic_rests() -> None:
    bench = Bench()
    bench.intake._sort([*(record(offset) for offset in range(8)), record(0, topic=LONG)])
    bench.intake._rest()
    assert bench.reader.at_rest == {SHORT}


def test_what_a_rebalance_took_is_no_longer_parked_nor_committable() -> None:
    bench = Bench()
    bench.intake._sort([record(0, late_ms=5_000), record(1), record(0, topic=LONG)])
    bench.reader.revoked = [(SHORT, 0), (LONG, 0)]
    bench.reader.lost = [(SHORT, 0)]
    bench.intake._forget_revoked()
    assert (bench.parked, bench.offsets.committable()) == (0, {})
    assert bench.offsets.num_open == 1, "the one that was given back keeps its place"


def test_what_is_done_behind_a_slow_one_is_not_served_again_after_a_rebalance() -> None:
    bench = Bench()
    bench.intake._sort([record(offset) for offset in range(3)])
    bench.offsets.done((SHORT, 0), 1)
    bench.reader.revoked = [(SHORT, 0)]
    bench.intake._forget_revoked()
    bench.intake._sort([record(offset) for offset in range(4)])
    assert bench.parked == 3, "0 and 2 were dropped unserved, 3 is new"
    assert bench.offsets.num_open == 3


def test_what_was_dropped_unserved_and_is_late_when_it_is_read_again_holds_up_no_commit() -> None:
    bench = Bench()
    bench.intake._sort([record(0)])
    bench.reader.revoked = [(SHORT, 0)]
    bench.intake._forget_revoked()
    bench.intake._sort([record(0, late_ms=5_000)])
    assert bench.offsets.committable() == {(SHORT, 0): 1}


async def test_what_is_read_again_while_it_is_served_is_let_alone() -> None:
    """Also where its deadline has passed meanwhile: its own end is to come."""
    bench = Bench(producer=Producer(away=True))
    crm = "chat.replies.crm"
    bench.intake._sort([record(0, replies=crm), record(1, replies=crm)])
    bench.intake._begin_what_fits()
    bench.reader.revoked = [(SHORT, 0)]
    bench.intake._forget_revoked()
    bench.intake._sort([record(0, replies=crm), record(1, replies=crm, late_ms=10)])
    assert (bench.parked, bench.worker.answered, bench.offsets.num_open) == (0, [], 2)
    await bench.intake.finish(0)


async def test_a_record_that_cannot_be_put_aside_holds_up_no_shutdown() -> None:
    """Without a broker; it is not committed, and read again."""
    bench = Bench(producer=Producer(away=True))
    bench.intake._sort([record(0)])
    bench.intake._begin_what_fits()
    async with asyncio.timeout(5):
        await bench.intake.finish(0.01)
    assert (len(bench.intake._preparing), bench.offsets.num_open) == (0, 1)


def test_of_an_erased_conversation_nothing_stays_with_the_worker_nor_in_what_was_encoded() -> None:
    bench = Bench()
    bench.intake.erase(Erase(tenant="demo", session_id="s", generation=7))
    assert bench.worker.erased == [(SessionKey("demo", "s"), 7)]
    assert bench.preparer.forgotten == [SessionKey("demo", "s")]


async def test_an_answer_that_has_nothing_for_who_asks_again_is_let_out_first() -> None:
    bench = Bench(worker=Worker(looks=3))
    assert not await bench.intake._repeated(order(now=now_unix_ms()), ((SHORT, 0), 1))
    assert bench.worker.looks == -1


async def test_an_answer_that_does_not_leave_is_waited_for_until_the_deadline() -> None:
    """Kafka is away, and acknowledges no end."""
    bench = Bench(worker=Worker(looks=float("inf")))
    async with asyncio.timeout(5):
        assert await bench.intake._repeated(
            order(now=(now := now_unix_ms()), first_token_unix_ms=int(now) + 30), ((SHORT, 0), 1)
        )


# --- what is refused is told to who asked and kept as a dead letter; its record is done when both stand


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two tries."""
    monkeypatch.setattr(deadletters, "_FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(("question", "code"), [("long", "input_too_long"), ("fault", "internal")])
async def test_who_asked_is_told_and_the_record_is_done_when_end_and_letter_stand(question: str, code: str) -> None:
    bench = Bench()
    with capture_logs():
        await bench.take(packed(id="r", input=question))
    [(target, end, acknowledged)] = bench.worker.told
    assert (target, end.request_id, end.session_id) == (EXTERNAL, "r", "s1")
    assert (end.status, end.reason, end.output_text) == ("failed", "internal", "")
    assert end.error is not None
    assert end.error.code == code
    assert bench.producer.letters[0].headers["dead-letter-reason"] == code.encode()
    assert "4111" not in f"{end.error.message} {bench.producer.letters[0].headers}"
    assert not bench.done, "its end is on its way"
    acknowledged.set_result(None)
    await quiet()
    assert bench.done


@pytest.mark.usefixtures("at_once")
async def test_a_letter_is_written_until_it_stands_and_who_asked_does_not_wait_for_it() -> None:
    bench = Bench(producer=Producer(away=True))
    with capture_logs() as lines:
        await bench.take(packed(id="r", input="long"))
        [(_, _, acknowledged)] = bench.worker.told
        acknowledged.set_result(None)
        await quiet()
        assert bench.producer.tries > 3
        assert not bench.done
        bench.producer.away = False
        await quiet()
    assert len(bench.producer.letters) == 1
    assert bench.done
    assert [line["event"] for line in lines] == ["unavailable", "dead_letter"], "it is said once"


async def test_letters_that_cannot_be_written_keep_nobody_else_from_being_served() -> None:
    bench = Bench(producer=Producer(away=True))
    with capture_logs():
        for number in range(10):
            await bench.take(*(packed(id=f"bad-{number}-{each}", input="long") for each in range(8)))
        await bench.take(packed(id="good", input="hello"))
        for _ in range(10):
            bench.intake._begin_what_fits()
            await quiet()
    assert bench.preparer.begun[-1] == "good"
    await bench.intake.finish(0)
    assert bench.offsets.num_open == 81, "none is committed"


async def test_who_names_a_reply_topic_that_is_not_allowed_is_told_nowhere() -> None:
    """Nor who contradicts himself."""
    bench = Bench()
    bench.intake._sort([Record(SHORT, 0, 0, b"k", packed(id="s"), {"ce_id": b"other"})])
    await bench.take(packed(id="r", input="long", reply_topic="payments"), packed(id="q", reply_partition=2**40))
    assert bench.worker.told == []
    assert len(bench.producer.letters) == 3
    assert bench.done


async def test_headers_at_which_the_intake_stumbles_set_one_record_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at before anything is opened, many records at a time."""
    bench = Bench()
    fate = bench.intake._triage.fate

    def stumble(headers: Any, key: bytes | None, now: float) -> Any:
        if headers.get("x") == b"bad":
            raise KeyError("a fault of our own")
        return fate(headers, key, now)

    monkeypatch.setattr("workers.intake.triage.Triage.fate", lambda _, *given: stumble(*given))
    with capture_logs():
        records = [Record(SHORT, 0, at, b"k", packed(id=f"r{at}"), {"x": x}) for at, x in enumerate((b"", b"bad", b""))]
        bench.intake._sort(records)
        bench.intake._begin_what_fits()
        await quiet()
    assert bench.preparer.begun == ["r0", "r2"]
    [letter] = bench.producer.letters
    assert letter.headers["dead-letter-origin"] == b"chat.requests.short/0/1"
    await bench.intake.finish(0)


async def test_a_record_that_has_ended_four_workers_is_set_aside_unserved_and_who_asked_is_told() -> None:
    bench = Bench(commits=Commits(number=5))
    with capture_logs():
        await bench.take(packed(id="r", input="hello"))
    [(target, end, acknowledged)] = bench.worker.told
    assert (target, end.request_id, end.status) == (EXTERNAL, "r", "failed")
    assert end.error is not None
    assert (end.error.code, end.error.retryable) == ("poison", False)
    assert bench.producer.letters[0].headers["dead-letter-reason"] == b"poison"
    assert bench.preparer.begun == []
    acknowledged.set_result(None)
    await quiet()
    assert bench.done


async def test_one_that_has_ended_a_worker_even_then_is_not_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be told: whom to tell stands in it."""

    def deadly(*_: object, **__: object) -> None:
        raise AssertionError("it is opened")

    monkeypatch.setattr("workers.intake.reader.open_request", deadly)
    bench = Bench(commits=Commits(number=6))
    with capture_logs():
        await bench.take(packed(id="r", input="hello"))
    assert bench.worker.told == []
    assert bench.producer.letters[0].headers["dead-letter-reason"] == b"poison"
    assert bench.done


async def test_what_goes_to_another_worker_before_it_is_worked_on_is_left_to_that() -> None:
    bench = Bench(commits=Commits(number=None))
    await bench.take(packed(id="r", input="hello"))
    assert (bench.preparer.begun, bench.producer.letters, bench.worker.told) == ([], [], [])
    assert not bench.done
