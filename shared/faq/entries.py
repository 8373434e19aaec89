"""The FAQ's entries: what a shop asks and answers, and how a file of them is read.

One file holds every language of an entry side by side, so that a fact is changed in all of them at once.
"""

from pathlib import Path
from typing import Literal

import msgspec

from shared.errors import SettingsError
from shared.messages import Grounding

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
PACKAGED_PATH = Path(__file__).with_name("shop.json")


class FaqEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer in one language. `id` is the same in every language."""

    id: str
    topic: str
    language: Language
    question: str
    alternatives: tuple[str, ...]
    answer: str

    def as_grounding(self) -> Grounding:
        """The entry as answers cite it."""
        return Grounding(id=self.id, question=self.question, answer=self.answer)


class FaqHit(msgspec.Struct, frozen=True):
    """An entry that matches a question. `score` is in 0..1: the share of the question that the entry covers."""

    entry: FaqEntry
    score: float


class _Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    alternatives: tuple[str, ...]
    answer: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    topic: str
    en: _Wording | None = None
    zh: _Wording | None = None


def read_entries(path: Path) -> list[FaqEntry]:
    """Read the entries of an FAQ file, or of all `*.json` of a folder by name, an entry's languages together.

    Raises SettingsError, in one line that names the file, if it cannot be read, is not UTF-8 JSON of the expected
    shape, holds an id or a question twice, or leaves a text empty.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    entries = [entry for file in files for entry in _read_file(file)]
    if not entries:
        raise SettingsError(f"FAQ {path}: holds no entry")
    _refuse_duplicates(entries, path)
    return entries


def _read_file(path: Path) -> list[FaqEntry]:
    try:
        records = msgspec.json.decode(path.read_bytes(), type=list[_Record])
    except OSError as error:
        raise SettingsError(f"FAQ file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"FAQ file {path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except msgspec.DecodeError as error:
        raise SettingsError(f"FAQ file {path}: {error}") from error
    return [entry for record in records for entry in _in_each_language(record, path)]


def _in_each_language(record: _Record, path: Path) -> list[FaqEntry]:
    wordings: tuple[tuple[Language, _Wording | None], ...] = (("en", record.en), ("zh", record.zh))
    entries = [
        FaqEntry(
            id=record.id,
            topic=record.topic,
            language=language,
            question=wording.question,
            alternatives=wording.alternatives,
            answer=wording.answer,
        )
        for language, wording in wordings
        if wording is not None
    ]
    if not entries:
        raise SettingsError(f'FAQ file {path}: entry "{record.id}" has neither "en" nor "zh"')
    for entry in entries:
        for text in (entry.id, entry.topic, entry.question, entry.answer, *entry.alternatives):
            if not text.strip():
                raise SettingsError(f'FAQ file {path}: entry "{entry.id}" ({entry.language}) has an empty text')
    return entries


def _refuse_duplicates(entries: list[FaqEntry], path: Path) -> None:
    ids: set[tuple[str, str]] = set()
    asked: dict[str, str] = {}
    for entry in entries:
        if (entry.id, entry.language) in ids:
            raise SettingsError(f'FAQ {path}: the id "{entry.id}" occurs twice')
        ids.add((entry.id, entry.language))
        for phrasing in (entry.question, *entry.alternatives):
            other = asked.setdefault(phrasing.strip().casefold(), entry.id)
            if other != entry.id:
                raise SettingsError(f'FAQ {path}: "{other}" and "{entry.id}" both ask "{phrasing}"')
