"""Ratings show where answers are bad, a person corrects them, and erasure removes the corrections."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lifecycle.learn import entries
from ops.lifecycle.learn.candidates import MOST_OF_A_SOURCE, Rated, candidates, named
from ops.lifecycle.learn.entries import add_lesson, faq_folder, remove_lessons
from ops.lifecycle.learn.lessons import Lesson, of_people, read_lessons, split
from ops.lifecycle.learn.rated import RatedAnswers
from shared.conversation.corrections import BadAnswer, source_of
from shared.errors import SettingsError, StoreUnavailable
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.faq.index import FaqIndex
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

QUESTION = "Do you engrave spoons?"


def rated(question: str, *, source: str, number: int = 0) -> Rated:
    bad = BadAnswer(response_id=f"resp_{number}", question=question, answer="No.", source=source, rated_unix_ms=number)
    return Rated(session=SessionKey("shop", f"s{number}"), bad=bad)


def lesson(entry: str = "learned-1", *, people: tuple[str, ...] = ("p",), question: str = QUESTION) -> Lesson:
    return Lesson(
        entry=entry,
        language="en",
        question=question,
        answer="Yes, for $5.",
        people=people,
        by="ann",
        confirmed_unix_ms=1,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(PACKAGED_PATH, tmp_path)
    return tmp_path


async def test_a_redis_that_says_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has no timer: each of its callers bounds its calls."""

    async def silent(_: object) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    monkeypatch.setattr("ops.lifecycle.learn.rated._TIMEOUT_MS", 1.0)
    answers = RatedAnswers(RedisSettings())
    monkeypatch.setattr(type(answers._client._client), "scan_iter", lambda *_, **__: silent(None))
    with pytest.raises(StoreUnavailable, match="start Redis"):
        await answers.all({})
    await answers.close()


def test_fifty_thumbs_of_one_source_are_one_voice() -> None:
    burst = [rated(f"question {number}", source="bot", number=number) for number in range(50)]
    burst += [rated("Why so slow?", source="bot", number=50 + number) for number in range(50)]
    two = [rated(QUESTION, source=source, number=200) for source in ("ann", "bob")]
    shown, left_out = candidates([*burst, *two])
    assert (shown[0].newest.bad.question, shown[0].sources) == (QUESTION, 2)
    assert len(shown) == 1 + MOST_OF_A_SOURCE
    assert left_out == 51 - MOST_OF_A_SOURCE


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["Q one?", "q ONE", "two"])), max_size=30))
def test_a_question_is_shown_once_with_all_who_asked_it(asked: list[tuple[str, str]]) -> None:
    found = [rated(question, source=source, number=number) for number, (source, question) in enumerate(asked)]
    shown, _ = candidates(found)
    assert sorted(each.bad.response_id for one in shown for each in one.rated) == sorted(
        each.bad.response_id for each in found
    )
    assert len(shown) == len({question[0].casefold() for _, question in asked})
    for each in found:
        assert each in named(shown, each.bad.response_id)[0].rated


def test_a_correction_is_found_by_the_search_until_it_is_removed(folder: Path) -> None:
    add_lesson(folder, lesson())
    assert FaqIndex.load(folder).search(QUESTION)[0].entry.answer == "Yes, for $5."
    assert remove_lessons(folder, lambda _: True) == ([lesson()], [])
    assert all(hit.entry.id != "learned-1" for hit in FaqIndex.load(folder).search(QUESTION))
    assert not (folder / "learned.json").exists()


def test_a_correction_that_would_spoil_the_faq_changes_nothing(folder: Path) -> None:
    add_lesson(folder, lesson())
    before = {file: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(SettingsError, match="both ask"):
        add_lesson(folder, lesson("learned-2"))
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_lessons_are_kept_with_the_conversations_that_they_come_from(folder: Path) -> None:
    one, other = lesson(people=("p", "q")), lesson("learned-2", people=("r",), question="Other?")
    add_lesson(folder, one)
    add_lesson(folder, other)
    assert read_lessons(folder) == [one, other]
    assert of_people(read_lessons(folder), {"q"}) == [one]
    add_lesson(folder, lesson(people=("s",)))
    assert of_people(read_lessons(folder), {"q"})[0].people == ("p", "q", "s")
    (folder / "lessons.jsonl").write_text("{}\n")
    with pytest.raises(SettingsError, match="line 1"):
        read_lessons(folder)


def test_two_confirms_at_once_lose_none(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: add_lesson(folder, lesson(f"learned-{n}", question=f"{n} and {n}?")), range(40)))
    assert {each.entry for each in read_lessons(folder)} == {f"learned-{n}" for n in range(40)}
    assert {each.id for each in read_entries(folder) if each.topic == "learned"} == {f"learned-{n}" for n in range(40)}


@pytest.mark.parametrize("fails", ["write_lessons", "_write_entries"])
@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_crash_leaves_no_entry_without_the_conversations_that_it_comes_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str, change: str
) -> None:
    add_lesson(folder, lesson(people=("p",)))

    def crash(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(entries, fails, crash)
    changes = {
        "add": lambda: add_lesson(folder, lesson("learned-2", people=("q",), question="Other?")),
        "remove": lambda: remove_lessons(folder, lambda _: True),
    }
    with pytest.raises(OSError, match="killed"):
        changes[change]()
    known = {each.entry for each in read_lessons(folder)}
    assert {each.id for each in read_entries(folder) if each.topic == "learned"} <= known


def test_nobody_is_both_trained_on_and_judged_by() -> None:
    lessons = [lesson(f"learned-{n}", people=(f"p{n % 40}", f"p{n % 7}"), question=f"{n}?") for n in range(200)]
    learned, judged = split(lessons)
    people = [{person for each in half for person in each.people} for half in (learned, judged)]
    assert learned
    assert judged
    held_out = {person for each in judged for person in each.people} - people[0]
    assert all(not held_out.isdisjoint(each.people) for each in judged)


def test_without_a_folder_the_message_says_how_to_make_one(tmp_path: Path) -> None:
    for path in (None, tmp_path / "shop.json"):
        with pytest.raises(SettingsError, match="mkdir faq"):
            faq_folder(path)


def test_a_subject_or_without_tokens_a_network_is_one_source() -> None:
    one, other = SessionKey("shop", "a"), SessionKey("shop", "b")
    assert source_of(one, "ann") == source_of(other, "ann") != source_of(one, "bob")
    assert one.digest != other.digest
    assert source_of(one, "") == one.digest
    assert source_of(one, "", "192.0.2.1") == source_of(other, "", "192.0.2.1") != source_of(one, "", "192.0.2.2")
    assert source_of(one, "192.0.2.1") != source_of(one, "", "192.0.2.1")
    assert source_of(SessionKey("other", "a"), "", "192.0.2.1") != source_of(one, "", "192.0.2.1")
