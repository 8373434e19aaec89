"""Ratings of one conversation count in the order in which they came."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.access.charges import Caller
from gateway.people.bad_answers import BadAnswers
from shared.conversation.corrections import decode_bad_answers
from shared.conversation.history import TurnsMissing
from shared.conversation.turn import Turn
from shared.wire.messages import Feedback
from shared.wire.session_key import SessionKey

SESSION = SessionKey("demo", "s")
CALLER = Caller(SESSION, address="192.0.2.1")


class Store:
    """A Redis whose calls each take a turn of the event loop."""

    value: bytes | None = None

    async def generation(self, _: SessionKey) -> int:
        await asyncio.sleep(0)
        return 0

    async def find(self, _: SessionKey) -> bytes | None:
        await asyncio.sleep(0)
        return self.value

    async def replace(self, _: SessionKey, value: bytes, before: bytes | None, **__: object) -> bool:
        await asyncio.sleep(0)
        same = self.value == before
        self.value = value if same else self.value
        return same

    async def withdraw(self, *_: object, **__: object) -> bytes | None:
        return self.value

    async def remove(self, _: SessionKey, value: bytes) -> bool:
        await asyncio.sleep(0)
        same = self.value == value
        self.value = None if same else self.value
        return same


@dataclass
class History:
    away: bool = False

    async def turns(self, *_: object, **__: object) -> list[Turn]:
        if self.away:
            raise TurnsMissing([], answered=False)
        for _turn in range(3):
            await asyncio.sleep(0)
        return [Turn(request_id=name, user="Why?", output_text="No.", source="model") for name in "ab"]


def bad_answers(store: Store, *, away: bool = False) -> BadAnswers:
    redis: Any = store
    history: Any = History(away)
    return BadAnswers(history=history, store=redis)


def rate(answers: BadAnswers, rating: str) -> None:
    answers.record_rating(
        CALLER, Feedback(response_id=rating[0], rating="down"), helped=rating[1] == "+", consented_unix_ms=0
    )


async def settled(answers: BadAnswers) -> None:
    while len(answers._beside):  # noqa: ASYNC110 - a test
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("ratings", "kept"),
    [
        (("a-", "b-"), "ab"),
        (("a-", "a+"), ""),
        (("a-", "a+", "a-"), "a"),
        (("a-", "b-", "a+"), "b"),
        (("b-", "a-", "b+", "a+"), ""),
    ],
)
async def test_concurrent_ratings_count_in_order(ratings: tuple[str, ...], kept: str) -> None:
    answers = bad_answers(store := Store())
    for rating in ratings:
        rate(answers, rating)
    await settled(answers)
    assert [each.response_id for each in decode_bad_answers(store.value or b"\x90")] == list(kept)


async def test_a_rating_of_an_answer_that_redis_does_not_return_is_reported() -> None:
    """It is no rating of an answer that the conversation does not have."""
    answers = bad_answers(Store(), away=True)
    with capture_logs() as lines:
        rate(answers, "a-")
        await settled(answers)
    assert [line["event"] for line in lines] == ["bad_answer_not_kept"]


@pytest.mark.parametrize(("newer", "kept"), [((), ""), (("b-",), "b")])
async def test_a_newer_consents_rating_keeps_no_withdrawn_one(newer: tuple[str, ...], kept: str) -> None:
    """It comes while the withdrawal is published."""
    answers = bad_answers(store := Store())
    rate(answers, "a-")
    await settled(answers)

    async def forget() -> None:
        for rating in newer:
            rate(answers, rating)
        await settled(answers)

    await answers.withdraw(SESSION, forget, asked=True)
    now = decode_bad_answers(store.value or b"\x90")
    assert "".join(each.response_id for each in now) == kept
