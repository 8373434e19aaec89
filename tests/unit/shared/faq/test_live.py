"""A changed FAQ file replaces the loaded one; an invalid one is logged once and changes nothing."""

import asyncio
import json
import os
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import SettingsError
from shared.faq import FaqIndex
from shared.faq.live import LiveFaq, fingerprint
from shared.settings import FaqSettings
from shared.telemetry import metrics

QUESTION = "When do you open?"


WHOLE = json.dumps(
    [{"id": "hours", "topic": "store", "en": {"question": QUESTION, "alternatives": [], "answer": "At nine."}}]
)


def put(path: Path, content: str | bytes | None) -> None:
    """None deletes the file."""
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write(path: Path, answer: str) -> None:
    put(path, WHOLE.replace("At nine.", answer))


def replace_keeping_time_and_size(path: Path, answer: str) -> None:
    before = path.stat()
    other = path.with_suffix(".new")
    write(other, answer)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert other.stat().st_size == before.st_size
    other.replace(path)


async def looked(faq: LiveFaq) -> None:
    """Check twice: a change counts once it has been seen twice."""
    await faq.look()
    await faq.look()


def answer_of(faq: LiveFaq) -> str:
    return faq.index.search(QUESTION)[0].entry.answer


def reloads(outcome: str) -> float:
    return float(metrics.faq_reloads.labels(outcome)._value.get())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "faq.json"
    write(path, "At nine.")
    return path


async def test_a_changed_file_is_served(path: Path) -> None:
    faq = LiveFaq(FaqSettings(path=path))
    before = reloads("reloaded")
    write(path, "At half past nine.")
    await looked(faq)
    assert answer_of(faq) == "At half past nine."
    assert reloads("reloaded") == before + 1


async def test_a_file_replaced_by_one_of_the_same_size_and_time_is_served(path: Path) -> None:
    """`cp -p` with `mv`, or a mounted ConfigMap, replaces it like this."""
    faq = LiveFaq(FaqSettings(path=path))
    replace_keeping_time_and_size(path, "At ten..")
    await looked(faq)
    assert answer_of(faq) == "At ten.."


async def test_a_file_added_to_the_folder_is_served_and_a_removed_one_is_not(tmp_path: Path, path: Path) -> None:
    faq = LiveFaq(FaqSettings(path=tmp_path))
    put(tmp_path / "zh.json", WHOLE.replace('"en"', '"zh"').replace(QUESTION, "几点开门？"))
    await looked(faq)
    assert sorted(entry.language for entry in faq.index.entries) == ["en", "zh"]
    put(tmp_path / "zh.json", None)
    await looked(faq)
    assert [entry.language for entry in faq.index.entries] == ["en"]


async def test_an_unchanged_file_is_not_read_again(path: Path) -> None:
    faq = LiveFaq(FaqSettings(path=path))
    index = faq.index
    await looked(faq)
    assert faq.index is index


async def test_a_file_being_written_is_not_read_until_it_is_unchanged(path: Path) -> None:
    faq = LiveFaq(FaqSettings(path=path))
    failed = reloads("failed")
    whole = WHOLE.replace("nine", "eleven")
    for end in range(1, len(whole), 20):
        put(path, whole[:end])
        await faq.look()
    put(path, whole)
    await looked(faq)
    assert answer_of(faq) == "At eleven."
    assert reloads("failed") == failed


@pytest.mark.parametrize(
    "content",
    [b"[", b"[]", "[]".encode("utf-16"), json.dumps([{"id": "x", "topic": "y"}]).encode(), b"\xff", b""],
)
async def test_an_invalid_file_is_logged_once_and_the_old_faq_stays(path: Path, content: bytes) -> None:
    faq = LiveFaq(FaqSettings(path=path))
    failed = reloads("failed")
    put(path, content)
    with structlog.testing.capture_logs() as lines:
        await looked(faq)
        await looked(faq)
    assert [line["event"] for line in lines] == ["faq_not_reloaded"]
    assert str(path) in lines[0]["cause"]
    assert reloads("failed") == failed + 1
    assert answer_of(faq) == "At nine."
    write(path, "At noon.")
    await looked(faq)
    assert answer_of(faq) == "At noon."


async def test_a_deleted_file_keeps_the_old_faq(path: Path) -> None:
    faq = LiveFaq(FaqSettings(path=path))
    put(path, None)
    with structlog.testing.capture_logs() as lines:
        await looked(faq)
        await looked(faq)
    assert len(lines) == 1
    assert answer_of(faq) == "At nine."


def test_a_process_does_not_start_with_an_invalid_file(path: Path) -> None:
    path.write_text("[")
    with pytest.raises(SettingsError, match="truncated"):
        LiveFaq(FaqSettings(path=path))


async def test_searches_continue_while_a_new_index_is_built(path: Path) -> None:
    """The event loop is not blocked, and each search finds the old answer or the new one."""
    faq = LiveFaq(FaqSettings(path=path))
    write(path, "At six.")
    await faq.look()
    looking = asyncio.create_task(faq.look())
    answers = [answer_of(faq)]
    while not looking.done():
        await asyncio.sleep(0)
        answers.append(answer_of(faq))
    assert (answers[0], answers[-1]) == ("At nine.", "At six.")
    assert answers == sorted(answers)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(["good", "bad", "gone", "look"]), max_size=12))
def test_the_last_valid_faq_answers_whatever_happens_to_the_file(tmp_path: Path, steps: list[str]) -> None:
    path = tmp_path / "faq.json"
    write(path, "At 0.")

    async def run() -> tuple[str, str]:
        faq, served, on_disk = LiveFaq(FaqSettings(path=path)), "At 0.", ""
        for number, step in enumerate(steps, start=1):
            if step == "good":
                on_disk = f"At {number}."
                write(path, on_disk)
            elif step == "bad":
                on_disk = ""
                put(path, "[" * number)
            elif step == "gone":
                on_disk = ""
                put(path, None)
            else:
                await looked(faq)
                served = on_disk or served
        return answer_of(faq), served

    actual, wanted = asyncio.run(run())
    assert actual == wanted


def test_a_fingerprint_distinguishes_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1")
    one = fingerprint(tmp_path)
    (tmp_path / "b.txt").write_text("no FAQ")
    assert fingerprint(tmp_path) == one
    (tmp_path / "a.json").write_text("12")
    assert fingerprint(tmp_path) != one
    assert fingerprint(tmp_path / "none") == ()


async def test_without_embeddings_a_question_has_no_vector(path: Path) -> None:
    assert await LiveFaq(FaqSettings(path=path)).vector_of("hello") is None
    assert isinstance(FaqIndex.load(path).search(QUESTION), list)
