"""Write confirmed corrections into the FAQ, from where gateways and workers have them within seconds."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ops.lifecycle.learn.lessons import Lesson
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.settings import PREFIX

FILE: Final = "learned.json"
_TOPIC: Final = "learned"


def faq_folder(path: Path | None) -> Path:
    """Return the folder of the FAQ. Raises `SettingsError` where it is no folder: then what to type."""
    if path is not None and path.is_dir():
        return path
    found = PACKAGED_PATH if path is None else path
    raise SettingsError(
        f"{PREFIX}FAQ__PATH is {'not set' if path is None else f'the file {path}'}, and corrections need a folder; "
        f"run: mkdir faq && cp {found} faq/ and set {PREFIX}FAQ__PATH=faq for gateways and workers too"
    )


def write_entries(folder: Path, lessons: Sequence[Lesson]) -> None:
    """Write the entries of all lessons, whole or not at all. Raises `SettingsError` where the FAQ would be bad, as
    where another entry asks the same."""
    with tempfile.TemporaryDirectory() as scratch:
        for file in folder.glob("*.json"):
            shutil.copy(file, scratch)
        trial = Path(scratch) / FILE
        trial.unlink(missing_ok=True)
        if lessons:
            trial.write_bytes(msgspec.json.format(msgspec.json.encode(_records(lessons)), indent=1) + b"\n")
        try:
            read_entries(Path(scratch))
        except SettingsError as error:
            raise SettingsError(str(error).replace(scratch, str(folder))) from None
        if lessons:
            new = folder / f"{FILE}.new"
            shutil.copy(trial, new)
            new.replace(folder / FILE)
        else:
            (folder / FILE).unlink(missing_ok=True)


def _records(lessons: Sequence[Lesson]) -> list[dict[str, Any]]:
    return [
        {
            "id": lesson.entry,
            "topic": _TOPIC,
            lesson.language: {"question": lesson.question, "alternatives": [], "answer": lesson.answer},
        }
        for lesson in lessons
    ]
