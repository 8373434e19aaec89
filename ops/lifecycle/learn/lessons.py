"""The corrections that a person has confirmed and the conversations they come from: a JSON line each, in the FAQ."""

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ops.lifecycle.learn.examples import Example
from shared.conversation.corrections import must_go
from shared.errors import SettingsError
from shared.wire.messages import Language
from shared.wire.outcome import Grounding

FILE: Final = "lessons.jsonl"
LEARNED: Final = "learned-"
"""The ids of corrections' entries begin so."""
_LOCK: Final = ".lessons.lock"
_HELD_OUT_OF_8: Final = 1


class Lesson(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A corrected answer. `entry` is the id of its FAQ entry; `people` are digests of the conversations that it comes
    from; `rated` has the time of each one's oldest rating, by a gateway's clock. `revision` is the version that
    answered badly; `by` is who confirmed it. `quotes`: the question is in the customer's own words, as an earlier
    release allowed."""

    entry: str
    language: Language
    question: str
    answer: str
    people: tuple[str, ...]
    by: str
    confirmed_unix_ms: int
    revision: str | None = None
    rated: dict[str, int] = {}
    quotes: bool = False

    def must_go(self, forgotten: Mapping[str, int]) -> bool:
        """Return whether one of its conversations was forgotten after it was rated. The clock of the machine that
        confirmed the lesson says nothing, unless an earlier release kept no rating's time."""
        return any(must_go(forgotten, (each,), self.rated.get(each, self.confirmed_unix_ms)) for each in self.people)


def read_lessons(folder: Path) -> list[Lesson]:
    """Read the lessons in the FAQ's folder. Raises `SettingsError` that names the line."""
    file = folder / FILE
    if not file.exists():
        return []
    found = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            found.append(msgspec.json.decode(line, type=Lesson))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise SettingsError(f"{file}, line {number}: {error}; mend or remove that line") from error
    return found


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait for the folder's lock and hold it: another `replyline learn` may read and write the same lessons."""
    with (folder / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, data: bytes) -> None:
    """Write a file to the disk, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def write_lessons(folder: Path, lessons: Iterable[Lesson]) -> None:
    write_whole(folder / FILE, b"".join(msgspec.json.encode(lesson) + b"\n" for lesson in lessons))


def people_of(lessons: Iterable[Lesson]) -> tuple[str, ...]:
    """Return the digests of the conversations that these lessons come from."""
    return tuple(sorted({person for lesson in lessons for person in lesson.people}))


def of_people(lessons: Iterable[Lesson], people: Collection[str]) -> list[Lesson]:
    """Return the lessons that come from one of these conversations."""
    return [lesson for lesson in lessons if not set(people).isdisjoint(lesson.people)]


def split(lessons: Iterable[Lesson]) -> tuple[list[Lesson], list[Lesson]]:
    """Return the lessons to train on and those to judge by, about one in eight, chosen by the customers alone: none
    is on both sides. A lesson of people on both sides trains nothing, and is judged by."""
    learned: list[Lesson] = []
    judged: list[Lesson] = []
    for lesson in lessons:
        (judged if any(_is_held_out(person) for person in lesson.people) else learned).append(lesson)
    return learned, judged


def example_of(lesson: Lesson) -> Example:
    """Return the lesson as `replyline optimize distill --targets` reads it."""
    entry = Grounding(id=lesson.entry, question=lesson.question, answer=lesson.answer)
    return Example(question=lesson.question, answer=lesson.answer, grounding=(entry,))


def _is_held_out(person: str) -> bool:
    return blake2b(person.encode(), digest_size=1).digest()[0] % 8 < _HELD_OUT_OF_8
