"""A bad answer is stored with consent, next to its conversation, until it is corrected or erased."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from gateway.access.charges import Caller
from gateway.people.bad_answers import BadAnswers
from ops.lifecycle.learn.candidates import Rated
from ops.lifecycle.learn.commands import _confirm
from ops.lifecycle.learn.copies import follow
from ops.lifecycle.learn.rated import rated_answers
from ops.stack.kafka_broker import KafkaBroker
from shared.conversation.history import History
from shared.conversation.session_value import SessionValue
from shared.conversation.turn import Turn
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH
from shared.faq.live import LiveFaq
from shared.kafka import Outgoing, Producer, create_topics
from shared.process.clock import wire_unix_ms
from shared.settings import FaqSettings, Settings
from shared.settings.kafka import KafkaSettings
from shared.settings.redis import RedisSettings
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Feedback, Forgotten
from shared.wire.session_key import SessionKey
from tests.support.samples.recordings import asked, written
from tests.support.typed_pages import ALL, ROOT

QUESTION = "Do you engrave spoons?"


class Rating:
    def __init__(self, redis: RedisSettings, session: SessionKey) -> None:
        self.redis, self.session = redis, session
        self.history = History(redis)
        self.bad_answers = BadAnswers(history=self.history, store=SessionValue(redis, "bad_answers"))

    def note(
        self, *, helped: bool = False, consented_unix_ms: float | None = None, response_id: str = "resp_1"
    ) -> None:
        """Rate the answer bad, with a consent of now or of another moment."""
        consented, bad = consented_unix_ms or wire_unix_ms(), Feedback(response_id=response_id, rating="down")
        self.bad_answers.record_rating(Caller(self.session), bad, helped=helped, consented_unix_ms=consented)

    async def rate(self, *, helped: bool = False, consented_unix_ms: float | None = None) -> list[Rated]:
        self.note(helped=helped, consented_unix_ms=consented_unix_ms)
        async with asyncio.timeout(10):
            while len(self.bad_answers._beside):  # noqa: ASYNC110 - a test
                await asyncio.sleep(0.01)
        return await self.kept()

    async def kept(self) -> list[Rated]:
        async with rated_answers(self.redis) as answers:
            return [each for each in await answers.all({}) if each.session == self.session]


@pytest_asyncio.fixture
async def rating(redis_server: Any, unique: Any) -> AsyncIterator[Rating]:
    redis = RedisSettings(url=redis_server.url, timeout_ms=10_000)
    made = Rating(redis, SessionKey("demo", unique("session")))
    turn = Turn(request_id="resp_1", user=QUESTION, output_text="No.", source="model", asked_unix_ms=1)
    assert await made.history.append(made.session, turn)
    yield made
    await made.bad_answers.close()
    await made.history.close()


@pytest_asyncio.fixture
async def kafka(kafka_broker: KafkaBroker, topic_prefix: str) -> KafkaSettings:
    settings = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap, topic_prefix=topic_prefix)
    await create_topics(settings, {settings.topics.erasures: 1, settings.topics.forgotten: 1})
    return settings


async def test_a_correction_answers_within_seconds_until_its_conversation_is_erased(
    rating: Rating, kafka: KafkaSettings, tmp_path: Path
) -> None:
    assert [each.bad.question for each in await rating.rate()] == [QUESTION]
    shutil.copy(PACKAGED_PATH, tmp_path)
    faq = LiveFaq(FaqSettings(path=tmp_path))
    settings = Settings(redis=rating.redis, kafka=kafka, faq=FaqSettings(path=tmp_path))
    with pytest.raises(SettingsError, match="customer's own sentence"):
        await _confirm(settings, tmp_path, "resp_1", "Yes, for $5.", QUESTION, "ann")
    assert [each.bad.question for each in await rating.kept()] == [QUESTION]
    assert await _confirm(settings, tmp_path, "resp_1", "Yes, for $5.", "Can spoons be engraved?", "ann") == 0
    for _ in range(2):  # a file counts once two checks have seen the same content
        await faq.look()
    assert faq.index.search(QUESTION)[0].entry.answer == "Yes, for $5."
    assert await rating.kept() == []
    stop, lines = asyncio.Event(), list[str]()
    following = asyncio.create_task(follow(kafka, tmp_path, (), lines.append, stop))
    producer = Producer(kafka, client_id="test")
    await producer.start()
    forgotten = Forgotten(person=rating.session.digest, unix_ms=int(wire_unix_ms()))
    await producer.publish(Outgoing(kafka.topics.forgotten, msgpack_encode(forgotten), key=b"k", partition=0))
    async with asyncio.timeout(20):
        while not lines:  # noqa: ASYNC110 - a test
            await asyncio.sleep(0.1)
    stop.set()
    await following
    await producer.stop()
    for _ in range(2):
        await faq.look()
    assert all(hit.entry.answer != "Yes, for $5." for hit in faq.index.search(QUESTION))


async def test_a_withdrawn_consent_removes_the_bad_answers_once_the_log_has_it(rating: Rating) -> None:
    assert await rating.rate()
    told: list[str] = []

    async def forget() -> None:
        assert await rating.kept(), "a failure here leaves them for the next try"
        told.append("forgotten")

    for _ in range(2):
        await rating.bad_answers.withdraw(rating.session, forget, asked=False)
        assert await rating.kept() == []
    assert told == ["forgotten"]


async def _forgotten() -> None: ...


@pytest.mark.parametrize("asked", [True, False], ids=["withdrawn", "returns without a consent"])
@pytest.mark.parametrize("kept", [True, False], ids=["one is kept", "none is kept"])
async def test_no_words_are_stored_after_a_withdrawal_by_an_earlier_consent(
    rating: Rating, asked: bool, kept: bool
) -> None:
    """The rating may be in transit or come later from an open page; a new consent counts again."""
    before = wire_unix_ms()
    if kept:
        assert await rating.rate()
    rating.note(consented_unix_ms=before)
    await asyncio.sleep(0)
    await rating.bad_answers.withdraw(rating.session, _forgotten, asked=asked)
    assert await rating.rate(consented_unix_ms=before) == []
    await asyncio.sleep(0.01)
    assert await rating.rate()


async def test_handling_a_bad_answer_does_not_restore_data_withdrawn_during_it(rating: Rating) -> None:
    (bad,) = await rating.rate()
    async with rated_answers(rating.redis) as answers:
        find = answers._values.find

        async def withdrawn_in_between(session: SessionKey) -> bytes | None:
            found = await find(session)
            await rating.bad_answers.withdraw(session, _forgotten, asked=True)
            return found

        answers._values.find = withdrawn_in_between  # type: ignore[method-assign]
        await answers.remove(Rated(session=bad.session, bad=replace(bad.bad, response_id="other")))
    assert await rating.kept() == []


async def test_a_bad_answer_from_before_an_erasure_is_not_listed_even_if_redis_has_it(rating: Rating) -> None:
    (bad,) = await rating.rate()
    for until, listed in ((bad.bad.rated_unix_ms, False), (bad.bad.rated_unix_ms - 1, True)):
        async with rated_answers(rating.redis) as answers:
            found = await answers.all({rating.session.digest: until})
        assert (bad in found) == listed


async def test_an_edge_that_missed_erasures_deletes_bad_answers_too(rating: Rating) -> None:
    assert await rating.rate()
    await rating.history.forget_all(rating.session.tenant)
    assert await rating.kept() == []


async def test_a_withdrawn_rating_is_deleted(rating: Rating) -> None:
    assert await rating.rate()
    assert await rating.rate(helped=True) == []


async def test_an_erased_conversation_has_no_bad_answers(rating: Rating) -> None:
    assert await rating.rate()
    await rating.history.delete(rating.session, generation=5)
    assert await rating.kept() == []
    assert await rating.rate() == []


async def test_the_commands_of_the_page_turn_a_bad_answer_into_an_entry(
    rating: Rating, kafka: KafkaSettings, tmp_path: Path
) -> None:
    """docs/lifecycle.md's block is typed as it is; its last line, which runs until Ctrl-C, for five seconds."""
    [block] = [each for each in ALL if each.key == "docs/lifecycle.md: replyline learn list"]
    turn = Turn(request_id="resp_3f2a", user=QUESTION, output_text="No.", source="model", asked_unix_ms=2)
    assert await rating.history.append(rating.session, turn)
    rating.note(response_id="resp_3f2a")
    async with asyncio.timeout(10):
        while len(rating.bad_answers._beside):  # noqa: ASYNC110 - a test
            await asyncio.sleep(0.01)
    (tmp_path / "faq").mkdir()
    shutil.copy(PACKAGED_PATH, tmp_path / "faq")
    written(tmp_path / "recording.gz", [asked(0.0, text=QUESTION, person=rating.session.digest)])
    env = {name: value for name, value in os.environ.items() if not name.startswith("REPLYLINE_")} | {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "REPLYLINE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "REPLYLINE_REDIS__URL": rating.redis.url,
        "REPLYLINE_FAQ__PATH": str(tmp_path / "faq"),
    }
    *lines, follows = block.text.splitlines()
    pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    typed = "\n".join([*lines, f"timeout --preserve-status -s INT 5 {follows}"])
    bash = await asyncio.create_subprocess_exec("bash", "-ec", typed, cwd=tmp_path, env=env, stdout=pipe, stderr=out)
    screen = (await bash.communicate())[0].decode()
    assert bash.returncode == 0, screen
    assert QUESTION in screen
    assert "Can spoons be engraved? → Yes, for €5." in screen
    assert "follows erasures for the corrections in" in screen
    assert (tmp_path / "lessons").is_dir()
    assert "Yes, for €5." in (tmp_path / "faq" / "learned.json").read_text()
