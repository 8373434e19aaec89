"""The oracle for unmodified workers finds the text that belongs to the turns in a record, and no other."""

import json
from datetime import UTC, datetime

import pytest

from shared.conversation.turn import Turn
from shared.settings import Settings
from shared.wire.messages import ChatRequest, ResponseCreated, ResponseDone
from shared.wire.outcome import Response, Timings, Usage
from tests.chaos.ledger.recorded import Recorded, Times, redis_away
from tests.chaos.ledger.requests import Breach, Ledger, Page, Question
from tests.chaos.ledger.shipped import Shipped, Speaker
from tests.chaos.ledger.verdict import judge

SETTINGS = Settings.model_validate(
    {"worker": {"engine": "fake", "slots": 1}, "answers": {"guard": False, "policy": "model"}}
)
NOW = 1_790_000_000_000
TEXTS = ("How do I return an item?", "How long does delivery take?", "Can I change the delivery address?")


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker(SETTINGS)


def request(number: int, *, concurrent: tuple[str, ...] = (), ahead_ms: int = 0) -> ChatRequest:
    created = NOW + number + ahead_ms
    return ChatRequest(
        id=f"r{number}",
        session_id="s",
        input=TEXTS[number],
        max_output_tokens=20,
        created_unix_ms=created,
        concurrent=concurrent,
    )


def verdict(
    speaker: Speaker,
    *,
    sees: tuple[int, ...],
    concurrent: tuple[str, ...] = (),
    published: tuple[int, ...] = (0, 1, 2),
    away: tuple[Times, ...] = (),
) -> tuple[set[Breach], int]:
    """Judge three answers, the third of which was written after those turns. `published` are the records sent to
    workers.
    """
    recorded, ledger = Recorded(away=[*away]), Ledger()
    requests = [request(0), request(1), request(2, concurrent=concurrent)]
    for number, (asked, seen) in enumerate(zip(requests, [(), (0,), sees], strict=True)):
        turns = recorded.kept["s"]
        job = speaker.job(asked, [turns[place] for place in seen])
        text = speaker.written(job)
        assert text is not None
        turns.append(turn(asked, text, job.prompt.window_start))
        if number in published:
            recorded.add_request(asked)
        tell(ledger, asked, text, number)
    rights = Shipped(ledger, recorded, [speaker])
    found = judge(ledger, rights)
    broken = {breach for breach, pages in found.broken.items() if [page for page, _ in pages if page is last(ledger)]}
    return broken - {Breach.TEXT}, rights.num_short


def turn(asked: ChatRequest, text: str, window_start: str | None) -> Turn:
    assert asked.created_unix_ms is not None
    return Turn(
        request_id=asked.id,
        user=asked.input,
        output_text=text,
        source="model",
        asked_unix_ms=asked.created_unix_ms,
        window_start=window_start or asked.id,
        concurrent=asked.concurrent,
    )


def last(ledger: Ledger) -> Page:
    return ledger.pages["e2"]


def tell(ledger: Ledger, asked: ChatRequest, text: str, number: int, *, ends_s: float | None = None) -> None:
    """Make a client ask this and receive that answer, at `ends_s` if not immediately."""
    question = Question(
        event_id=f"e{number}",
        session="s~1",
        text=asked.input,
        max_output_tokens=20,
        first_token_ms=1_000,
        deadline_ms=1_000,
    )
    ledger.asked(question, number)
    ledger.heard("s~1", ResponseCreated(response_id=asked.id, event_id=f"e{number}", bucket="short"), number)
    response = Response(
        id=asked.id,
        status="incomplete",
        reason="max_output_tokens",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
    )
    ledger.heard("s~1", ResponseDone(response=response, cursor="c"), number if ends_s is None else ends_s)


@pytest.mark.parametrize(
    ("sees", "concurrent", "published"),
    [
        pytest.param((0, 1), (), (0, 1, 2), id="all turns"),
        pytest.param((0,), ("r1",), (0, 1, 2), id="one answer was open at the same time"),
        pytest.param((), ("r0", "r1"), (0, 1, 2), id="both were"),
        pytest.param((0, 1), (), (0, 2), id="a gateway answered one without a worker"),
    ],
)
def test_an_answer_is_right_after_the_turns_that_its_record_names(
    speaker: Speaker, sees: tuple[int, ...], concurrent: tuple[str, ...], published: tuple[int, ...]
) -> None:
    assert verdict(speaker, sees=sees, concurrent=concurrent, published=published) == (set(), 0)


@pytest.mark.parametrize("sees", [(1,), (0,), ()])
def test_an_answer_may_lack_turns_only_if_redis_was_away(speaker: Speaker, sees: tuple[int, ...]) -> None:
    assert verdict(speaker, sees=sees) == ({Breach.WRONG_TEXT}, 0)
    assert verdict(speaker, sees=sees, away=((NOW, NOW + 1),)) == (set(), 1)
    assert verdict(speaker, sees=sees, away=((NOW - 9_000, NOW - 5_000),)) == ({Breach.WRONG_TEXT}, 0)


@pytest.mark.parametrize("away", [(), ((NOW, NOW + 1),)])
def test_a_worker_that_ignores_open_questions_is_detected(speaker: Speaker, away: tuple[Times, ...]) -> None:
    assert verdict(speaker, sees=(0, 1), concurrent=("r1",), away=away) == ({Breach.WRONG_TEXT}, 0)


@pytest.mark.parametrize(
    ("ends_s", "written", "broken"),
    [
        pytest.param(0.5, (1, 0), set(), id="before the other was asked"),
        pytest.param(2.0, (0, 1), set(), id="before the other was written"),
        pytest.param(2.0, (1, 0), {Breach.WRONG_TEXT}, id="after both"),
    ],
)
def test_a_clock_that_is_ahead_puts_no_turn_before_a_question_that_was_answered(
    speaker: Speaker, ends_s: float, written: tuple[int, ...], broken: set[Breach]
) -> None:
    """The gateway of the first question dates it after the second, and the first is answered without the second."""
    recorded, ledger, turns = Recorded(), Ledger(), list[Turn]()
    for number, (asked, until_s) in enumerate([(request(0, ahead_ms=5_000), ends_s), (request(1), 3.0)]):
        text = speaker.written(job := speaker.job(asked, []))
        assert text is not None
        turns.append(turn(asked, text, job.prompt.window_start))
        recorded.add_request(asked)
        tell(ledger, asked, text, number, ends_s=until_s)
    recorded.kept["s"] += [turns[number] for number in written]
    found = judge(ledger, Shipped(ledger, recorded, [speaker])).broken
    assert {breach for breach, pages in found.items() if any(page is ledger.pages["e0"] for page, _ in pages)} - {
        Breach.TEXT,
        Breach.LATE,
    } == broken


def test_redis_counts_as_away_from_the_outage_line_until_recovery_or_restart() -> None:
    events = [("redis", "unavailable", 1), ("kafka", "available", 2), ("redis", "unavailable", 3)]
    events += [("redis", "available", 4), ("redis", "unavailable", 6), ("", "worker_ready", 8)]
    log = [
        json.dumps({"event": event, "timestamp": f"2026-01-01T00:00:0{at}Z"} | ({"what": what} if what else {}))
        for what, event, at in events
    ]
    begun = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    away = redis_away("\n".join(["Traceback", *log]))
    assert [(from_ms / 1_000 - begun, until_ms / 1_000 - begun) for from_ms, until_ms in away] == [(1, 4), (6, 8)]
    assert redis_away(log[0])[0][1] == float("inf")
