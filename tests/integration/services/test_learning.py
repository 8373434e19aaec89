"""A bad answer is kept with consent, beside its conversation, until it is corrected or erased."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.access.charges import Caller
from gateway.people.bad_answers import BadAnswers
from ops.lifecycle.learn.candidates import Rated
from ops.lifecycle.learn.commands import _confirm
from ops.lifecycle.learn.rated import rated_answers
from shared.conversation.history import History
from shared.conversation.session_value import SessionValue
from shared.conversation.turn import Turn
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH
from shared.faq.live import LiveFaq
from shared.settings import FaqSettings, Settings
from shared.settings.redis import RedisSettings
from shared.wire.messages import Feedback
from shared.wire.session_key import SessionKey

QUESTION = "Do you engrave spoons?"


class Rating:
    def __init__(self, redis: RedisSettings, session: SessionKey) -> None:
        self.redis, self.session = redis, session
        self.history = History(redis)
        self.bad_answers = BadAnswers(history=self.history, store=SessionValue(redis, "bad_answers"))

    async def rate(self, *, helped: bool = False) -> list[Rated]:
        self.bad_answers.note(Caller(self.session), Feedback(response_id="resp_1", rating="down"), helped=helped)
        async with asyncio.timeout(10):
            while len(self.bad_answers._beside):  # noqa: ASYNC110 - a test
                await asyncio.sleep(0.01)
        return await self.kept()

    async def kept(self) -> list[Rated]:
        async with rated_answers(self.redis) as answers:
            return [each for each in await answers.all() if each.session == self.session]


@pytest_asyncio.fixture
async def rating(redis_server: Any, unique: Any) -> AsyncIterator[Rating]:
    redis = RedisSettings(url=redis_server.url, timeout_ms=10_000)
    made = Rating(redis, SessionKey("demo", unique("session")))
    turn = Turn(request_id="resp_1", user=QUESTION, output_text="No.", source="model", asked_unix_ms=1)
    assert await made.history.append(made.session, turn)
    yield made
    await made.bad_answers.close()
    await made.history.close()


async def test_a_correction_answers_within_seconds(
    rating: Rating, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [each.bad.question for each in await rating.rate()] == [QUESTION]
    shutil.copy(PACKAGED_PATH, tmp_path)
    faq = LiveFaq(FaqSettings(path=tmp_path))
    settings = Settings(redis=rating.redis, faq=FaqSettings(path=tmp_path))
    with pytest.raises(SettingsError, match="customer's own sentence"):
        await _confirm(settings, tmp_path, "resp_1", "Yes, for $5.", QUESTION, "ann")
    assert [each.bad.question for each in await rating.kept()] == [QUESTION]
    assert await _confirm(settings, tmp_path, "resp_1", "Yes, for $5.", "Can spoons be engraved?", "ann") == 0
    for _ in range(2):  # a file counts once two looks have seen the same
        await faq.look()
    assert faq.index.search(QUESTION)[0].entry.answer == "Yes, for $5."
    assert await rating.kept() == []


async def test_a_rating_that_is_taken_back_is_forgotten(rating: Rating) -> None:
    assert await rating.rate()
    assert await rating.rate(helped=True) == []


async def test_an_erased_conversation_has_no_bad_answers(rating: Rating) -> None:
    assert await rating.rate()
    await rating.history.delete(rating.session, generation=5)
    assert await rating.kept() == []
    assert await rating.rate() == []
