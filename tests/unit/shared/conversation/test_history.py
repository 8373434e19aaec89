"""A conversation's turns while some are still being written; Redis answers in any order."""

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from shared.conversation.history import History, open_at
from shared.conversation.turn import Turn
from shared.settings.redis import RedisSettings
from shared.telemetry import metrics
from shared.wire.outcome import Source, Timings
from shared.wire.session_key import SessionKey

SESSION = SessionKey("t", "s")

TURN = Turn(request_id="r", user="Where is it?", output_text="On its way.", source="model", asked_unix_ms=1)


async def test_a_turn_written_during_a_read_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis reads before it writes, and the write's answer arrives first."""
    history = History(RedisSettings(timeout_ms=10_000))

    async def append(*_: Any) -> int:
        return 1

    async def read(*_: Any) -> list[bytes]:
        await asyncio.gather(*history._writing._tasks.get("replyline:{t/s}:turns", ()))
        return []

    monkeypatch.setattr(history, "_append", append)
    monkeypatch.setattr(history._redis, "call", read)
    monkeypatch.setattr(history._writing, "_looked_s", float("inf"))  # the memory usage of Redis is not asked
    history.remember(SESSION, TURN)
    assert await history.turns(SESSION, limit=4, before_unix_ms=2) == [TURN]
    assert await history.turns(SESSION, limit=4, before_unix_ms=2) == [], "it is no longer being written"
    await history.close()


async def test_a_turn_of_an_erased_generation_is_neither_written_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis may have lost the erasure mark, and may be slow."""
    history, written, may_write = History(RedisSettings(timeout_ms=10_000)), list[bytes](), asyncio.Event()

    async def append(_: object, args: tuple[bytes, int]) -> int:
        await may_write.wait()
        written.append(args[0])
        return 1

    async def read(*_: Any) -> list[bytes]:
        return []

    monkeypatch.setattr(history, "_append", append)
    monkeypatch.setattr(history._redis, "call", read)
    later = msgspec.structs.replace(TURN, request_id="later", generation=7)
    history.remember(SESSION, TURN)
    history.remember(SESSION, later)
    assert await history.turns(SESSION, limit=4, before_unix_ms=2, generation=7) == [later], (
        "before the erasure is received"
    )
    history.forget(SESSION, 7)
    assert await history.turns(SESSION, limit=4, before_unix_ms=2) == [later]
    may_write.set()
    await history.close()
    assert [msgspec.msgpack.decode(value, type=Turn) for value in written] == [later]


async def test_a_turn_that_redis_stored_after_its_erasure_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(RedisSettings())
    turns = [msgspec.structs.replace(TURN, request_id=f"r{at}", generation=at) for at in (0, 6, 7, 8)]

    async def read(*_: Any) -> list[bytes]:
        return [msgspec.msgpack.encode(turn) for turn in turns]

    monkeypatch.setattr(history._redis, "call", read)
    assert await history.turns(SESSION, limit=4, before_unix_ms=2, generation=7) == turns[2:]
    assert await history.turns(SESSION, limit=4, before_unix_ms=2) == turns, "another service names none"
    await history.close()


@pytest.mark.parametrize("num_since", [0, 4, 9, 30])
async def test_the_last_turns_ordered_by_question_do_not_depend_on_later_ends(
    monkeypatch: pytest.MonkeyPatch, num_since: int
) -> None:
    """The last two questions ended first, like questions that the model does not answer."""
    history, limit = History(RedisSettings()), 5
    ended = [
        msgspec.structs.replace(TURN, request_id=f"r{asked}", asked_unix_ms=asked)
        for asked in [8, 9, *range(8), *range(20, 20 + num_since)]
    ]

    async def read(call: Any) -> list[bytes]:
        return [msgspec.msgpack.encode(turn) for turn in call(_Stored())(ended)]

    monkeypatch.setattr(history._redis, "call", read)
    open_since = [f"r{asked}" for asked in range(20, 20 + num_since)]
    found = await history.turns(SESSION, limit=limit, before_unix_ms=10, request_id="me", concurrent=open_since)
    assert [turn.asked_unix_ms for turn in found] == [5, 6, 7, 8, 9]
    await history.close()


@pytest.mark.parametrize(
    ("total_ms", "open_at"),
    [
        pytest.param(None, ["question", "turn"], id="the end is unknown"),
        pytest.param(-1.0, ["question", "turn"], id="before its own question, by a clock that was set back"),
        pytest.param(900.0, ["turn"], id="long before, by a clock that its worker contradicts"),
        pytest.param(3_999.0, ["turn"], id="a second before"),
        pytest.param(4_000.0, ["question", "turn"], id="within the second before"),
        pytest.param(6_000.0, ["question", "turn"], id="within the second after"),
        pytest.param(
            6_001.0, ["question", "turn", "neither"], id="later: its gateway ended it while its worker was delayed"
        ),
    ],
)
@pytest.mark.parametrize("named_by", ["question", "turn", "neither"])
async def test_a_turn_that_was_open_during_a_question_is_not_in_its_prompt(
    monkeypatch: pytest.MonkeyPatch, total_ms: float | None, open_at: list[str], named_by: str
) -> None:
    """A gateway that died or had no Redis lists a turn that ended long before as open; a worker lists those it saw."""
    history, of_turn = History(RedisSettings()), ("me",) if named_by == "turn" else ()
    ended = msgspec.structs.replace(TURN, timings=Timings(total_ms=total_ms), concurrent=of_turn)

    async def read(*_: Any) -> list[bytes]:
        return [msgspec.msgpack.encode(ended)]

    monkeypatch.setattr(history._redis, "call", read)
    concurrent = ["r"] if named_by == "question" else []
    found = await history.turns(SESSION, limit=4, before_unix_ms=5_001, request_id="me", concurrent=concurrent)
    assert found == [ended] * (named_by not in open_at)
    await history.close()


@pytest.mark.parametrize(("status", "reason"), [("cancelled", "client"), ("incomplete", "deadline")])
@pytest.mark.parametrize(("total_ms", "was_open"), [(5_000.0, False), (5_001.0, True)])
def test_an_answer_ended_by_its_gateway_was_open_if_its_worker_ended_it_after_the_question(
    status: Any, reason: Any, total_ms: float, was_open: bool
) -> None:
    ended = msgspec.structs.replace(TURN, status=status, reason=reason, timings=Timings(total_ms=total_ms))
    assert open_at(ended, ended.asked_unix_ms + 5_000, "me", ()) == was_open


@pytest.mark.parametrize("written", [("a", "b"), ("b", "a")])
async def test_turns_of_the_same_millisecond_have_one_order_in_any_write_order(
    monkeypatch: pytest.MonkeyPatch, written: tuple[str, str]
) -> None:
    history = History(RedisSettings())
    turns = [msgspec.structs.replace(TURN, request_id=name) for name in written]

    async def read(*_: Any) -> list[bytes]:
        return [msgspec.msgpack.encode(turn) for turn in turns]

    monkeypatch.setattr(history._redis, "call", read)
    found = await history.turns(SESSION, limit=4, before_unix_ms=2)
    assert [turn.request_id for turn in found] == ["a", "b"]
    await history.close()


@pytest.mark.parametrize(
    ("first", "text", "asked_unix_ms", "counts"),
    [
        ("cancelled", "On", 1, [0]),  # by a worker that missed the cancel
        ("cancelled", "", 1, []),  # by one that missed the cancel of an answer without text
        ("cancelled", "On", 2, [1]),  # asked again
        ("cancelled", "", 2, [1]),
        ("cancelled", "On", 0, [1]),  # asked again at a gateway whose clock is behind
        ("cancelled", "On", 5, [0]),  # asked again with this question or later
        ("completed", "On", 1, [0]),
        ("completed", "On", 2, [0]),
    ],
)
async def test_only_a_question_that_is_asked_again_replaces_its_cancelled_turn(
    monkeypatch: pytest.MonkeyPatch, first: Any, text: str, asked_unix_ms: int, counts: list[int]
) -> None:
    turns = [
        msgspec.structs.replace(TURN, status=first, output_text=text),
        msgspec.structs.replace(TURN, asked_unix_ms=asked_unix_ms),
    ]
    assert await found_in(turns, monkeypatch) == [turns[place] for place in counts]


@pytest.mark.parametrize("text", ["", "On"])
async def test_the_faqs_answer_counts_after_the_cancel_that_its_gateway_sent(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Redis may have been slow for the gateway: its turn is written after the worker's, whose text came too late."""
    cancelled = msgspec.structs.replace(TURN, status="cancelled", output_text=text)
    instead = msgspec.structs.replace(TURN, source="faq", origin="gateway")
    assert await found_in([cancelled, instead], monkeypatch) == [instead]


@pytest.mark.parametrize("source", get_args(Source))
@pytest.mark.parametrize("text", ["", "On"])
async def test_no_answer_of_a_worker_that_missed_the_cancel_counts(
    monkeypatch: pytest.MonkeyPatch, source: Any, text: str
) -> None:
    cancelled = msgspec.structs.replace(TURN, status="cancelled", output_text=text)
    missed = msgspec.structs.replace(TURN, source=source)
    assert await found_in([cancelled, missed], monkeypatch) == ([cancelled] if text else [])


async def test_a_turn_that_had_not_ended_is_not_replaced_by_one_that_another_worker_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other worker's end is within the second that clocks may differ by."""
    cancelled = msgspec.structs.replace(TURN, status="cancelled", timings=Timings(total_ms=4.5))
    whole = msgspec.structs.replace(TURN, timings=Timings(total_ms=900.0))
    assert await found_in([cancelled, whole], monkeypatch) == []


async def found_in(turns: list[Turn], monkeypatch: pytest.MonkeyPatch) -> list[Turn]:
    """Return the turns for a question that is asked at 5."""
    history = History(RedisSettings())

    async def read(*_: Any) -> list[bytes]:
        return [msgspec.msgpack.encode(turn) for turn in turns]

    monkeypatch.setattr(history._redis, "call", read)
    found = await history.turns(SESSION, limit=4, before_unix_ms=5, concurrent=())
    await history.close()
    return found


class _Stored:
    """A Redis whose answer depends only on its contents."""

    def lrange(self, _: str, first: int, last: int) -> Callable[[list[Turn]], list[Turn]]:
        return lambda turns: turns[first : None if last == -1 else last + 1]


async def test_a_turn_that_cannot_be_written_is_counted_and_the_others_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History(RedisSettings())
    written: list[object] = []

    async def append(keys: list[str], _: object) -> int:
        if "bad" in keys[0]:
            raise TypeError("a fault of our own")
        written.append(keys[0])
        return 1

    monkeypatch.setattr(history, "_append", append)
    count = metrics.faults.labels("history")._value
    before = count.get()
    with capture_logs():
        for session in ("bad", "good"):
            history.remember(SessionKey("t", session), TURN)
        await history.close()
    assert (len(written), count.get() - before, history._writing._tasks) == (1, 1, {})


def lost() -> float:
    return float(metrics.history_unavailable.labels("lost")._value.get())


class Failing:
    """A Redis that fails this many times; the client pauses after each failure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, times: int, alone_s: float = 0.01) -> None:
        for module in ("shared.redis.calls", "shared.conversation.history", "shared.conversation.turn_writing"):
            monkeypatch.setattr(f"{module}.RETRY_AFTER_S", alone_s)
        self.history = History(RedisSettings())
        self.left = times
        self.written: list[str] = []
        monkeypatch.setattr(self.history, "_append", self.append)
        monkeypatch.setattr(self.history._redis, "ping", self.answer)

    async def answer(self) -> None:
        await asyncio.sleep(0)  # as over a network
        if self.left:
            self.left -= 1
            raise RedisConnectionError("away")

    async def append(self, _: object, args: tuple[bytes, int]) -> int:
        await self.answer()
        self.written.append(msgspec.msgpack.decode(args[0], type=Turn).request_id)
        return 1


async def test_turns_that_redis_missed_are_written_in_order_when_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redis, before = Failing(monkeypatch, times=3), lost()
    for number in range(5):
        redis.history.remember(SESSION, msgspec.structs.replace(TURN, request_id=f"r{number}"))
    async with asyncio.timeout(10):
        await asyncio.gather(*redis.history._writing._tasks["replyline:{t/s}:turns"])
    assert (redis.written, lost() - before) == (["r0", "r1", "r2", "r3", "r4"], 0)
    await redis.history.close()


@pytest.mark.parametrize(("times", "kept"), [(2, ["r0", "r1"]), (9, [])])
async def test_waiting_turns_are_tried_once_more_at_shutdown_and_losses_are_counted(
    monkeypatch: pytest.MonkeyPatch, times: int, kept: list[str]
) -> None:
    monkeypatch.setattr("shared.conversation.turn_writing._TRIED_FOR_S", 3_600.0)
    redis, before = Failing(monkeypatch, times=times, alone_s=60.0), lost()
    for number in range(2):
        redis.history.remember(SessionKey("t", f"s{number}"), msgspec.structs.replace(TURN, request_id=f"r{number}"))
    for _ in range(50):
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await redis.history.close()
    assert (redis.written, lost() - before) == (kept, 2 - len(kept))


async def test_the_number_of_turns_waiting_to_be_written_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.conversation.turn_writing._MOST_WAITING", 3)
    redis, before = Failing(monkeypatch, times=5), lost()
    for number in range(5):
        redis.history.remember(SessionKey("t", f"s{number}"), msgspec.structs.replace(TURN, request_id=f"r{number}"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert lost() - before == 2
    await redis.history.close()
