"""Write confirmed corrections into the FAQ, which gateways and workers read again within seconds."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ops.lifecycle.learn.lessons import Lesson, locked, read_lessons, write_lessons, write_whole
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.settings import PREFIX

FILE: Final = "learned.json"
_TOPIC: Final = "learned"


def faq_folder(path: Path | None) -> Path:
    """Return the folder of the FAQ. Raises `SettingsError` if it is no folder: then what to type."""
    if path is not None and path.is_dir():
        return path
    found = PACKAGED_PATH if path is None or not path.is_file() else path
    is_ = "not set" if path is None else f"the file {path}" if path.is_file() else f"{path}, which is not there"
    raise SettingsError(
        f"{PREFIX}FAQ__PATH is {is_}, and corrections need a folder; "
        f"run: mkdir faq && cp {found} faq/ and set {PREFIX}FAQ__PATH=faq for gateways and workers too"
    )


def add_lesson(folder: Path, lesson: Lesson) -> None:
    """Add a lesson and its entry; one of the same entry is replaced, and its people are kept. The lesson is written
    first: after a crash no entry is without the conversations that it comes from. Raises `SettingsError` if the FAQ
    would be bad, as where another entry asks the same."""
    with locked(folder):
        before = read_lessons(folder)
        same = [each for each in before if each.entry == lesson.entry]
        people = {person for each in (*same, lesson) for person in each.people}
        times = [pair for each in same for pair in each.rated.items()]
        rated = lesson.rated | {person: min(unix_ms, lesson.rated.get(person, unix_ms)) for person, unix_ms in times}
        lesson = msgspec.structs.replace(lesson, people=tuple(sorted(people)), rated=rated)
        lessons = [*(each for each in before if each.entry != lesson.entry), lesson]
        _check(folder, lessons)
        write_lessons(folder, lessons)
        _write_entries(folder, lessons)


def remove_lessons(folder: Path, is_gone: Callable[[Lesson], bool]) -> tuple[list[Lesson], list[Lesson]]:
    """Remove lessons and their entries, the entries first; return which are gone and which are kept. Raises
    `SettingsError` where the lessons cannot be read."""
    with locked(folder):
        lessons = read_lessons(folder)
        gone = [lesson for lesson in lessons if is_gone(lesson)]
        kept = [lesson for lesson in lessons if lesson not in gone]
        if gone:
            _write_entries(folder, kept)
            write_lessons(folder, kept)
    return gone, kept


def _check(folder: Path, lessons: Sequence[Lesson]) -> None:
    """Read the FAQ as it would be. Raises `SettingsError`."""
    with tempfile.TemporaryDirectory() as scratch:
        for file in folder.glob("*.json"):
            shutil.copy(file, scratch)
        (Path(scratch) / FILE).write_bytes(_encoded(lessons))
        try:
            read_entries(Path(scratch))
        except SettingsError as error:
            raise SettingsError(str(error).replace(scratch, str(folder))) from None


def _write_entries(folder: Path, lessons: Sequence[Lesson]) -> None:
    if lessons:
        write_whole(folder / FILE, _encoded(lessons))
    else:
        (folder / FILE).unlink(missing_ok=True)


def _encoded(lessons: Sequence[Lesson]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_records(lessons)), indent=1) + b"\n"


def _records(lessons: Sequence[Lesson]) -> list[dict[str, Any]]:
    return [
        {
            "id": lesson.entry,
            "topic": _TOPIC,
            lesson.language: {"question": lesson.question, "alternatives": [], "answer": lesson.answer},
        }
        for lesson in lessons
    ]
