"""The FAQ's entries, and how a file of them is read. A file has all languages of an entry together, so that a fact is
changed in all of them."""

import codecs
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from shared.errors import SettingsError
from shared.faq.terms import wording
from shared.faq.texts import INVISIBLE, MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, fault_of, shown
from shared.faq.words.fold import plain_entry
from shared.hosts import WEB, check_url
from shared.settings.redis import without_password
from shared.wire.messages import Language
from shared.wire.outcome import Grounding

LANGUAGES: tuple[Language, ...] = ("en", "zh")
PACKAGED_PATH = Path(__file__).with_name("shop.json")
MAX_ENTRIES = 20_000  # of all languages; with 100,000 each change took 23 s and 0.75 GiB


class FaqEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer in one language. `id` is the same in every language. `also` are further wordings for
    the search alone: no language model is calibrated or trained on them; the decision is, on those of dev entries.
    `url` is the page where customers read more."""

    id: str
    topic: str
    language: Language
    question: str
    alternatives: tuple[str, ...]
    answer: str
    also: tuple[str, ...] = ()
    url: str = ""

    @property
    def wordings(self) -> tuple[str, ...]:
        """All that it is found by."""
        return (self.question, *self.alternatives, *self.also)

    def as_grounding(self) -> Grounding:
        """Return the entry as answers cite it."""
        return Grounding(id=self.id, question=self.question, answer=self.answer, url=self.url or None)


_CERTAIN = 1e-9
_MOST_URL_CHARS = 2_000


def check_page(url: str) -> None:
    """Raise `ValueError`, with the remedy, for a `url` that an entry may not have."""
    form = f"https:// and a page of at most {_MOST_URL_CHARS:,} characters"
    check_url(url, WEB, form=form, login="customers would read it")
    if len(url) > _MOST_URL_CHARS:
        raise ValueError(f"write {form}")


def is_page(url: str) -> bool:
    """Return whether an entry may have this `url`."""
    try:
        check_page(url)
    except ValueError:
        return False
    return True


class FaqHit(msgspec.Struct, frozen=True):
    """An entry that matches a question.

    Attributes:
        entry: The entry as the FAQ has it.
        score: The share of the question that the entry covers, in 0..1.
        sureness: The probability, in 0..1, that the entry answers the question; 0 from the third hit on, unless the
            question is one of its wordings.
        bears_opening: Whether the "Yes" or "No" at the beginning of the answer answers this question too. True for an
            answer without one.
        related: Whether the entry has more to do with the question than with most questions off every shop's topic.
    """

    entry: FaqEntry
    score: float
    sureness: float = 0.0
    bears_opening: bool = True
    related: bool = True

    @property
    def logit(self) -> float:
        """Return the logit of its sureness, in -21..21."""
        sureness = min(max(self.sureness, _CERTAIN), 1.0 - _CERTAIN)
        return math.log(sureness / (1.0 - sureness))


_FORM = 'write a list of {"id": "…", "topic": "…", "en": {"question": "…", "alternatives": [], "answer": "…"}}'


class _Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    alternatives: tuple[str, ...]
    answer: str
    also: tuple[str, ...] = ()
    url: str = ""


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    topic: str
    en: _Wording | None = None
    zh: _Wording | None = None


def read_entries(path: Path, dropped: Counter[str] | None = None) -> list[FaqEntry]:
    """Read the entries of an FAQ file, or of all `*.json` of a folder by name, an entry's languages together. Invisible
    characters that only break words are left out, and counted in `dropped`. Raises `SettingsError`, in one line that
    names the file, if it cannot be read, is not UTF-8 JSON of the expected shape (a byte order mark is accepted), holds
    an id or a question twice (however typed), a text that is not fit to be shown, or more than `MAX_ENTRIES`."""
    entries = [entry for file in _files(path) for entry in entries_of(_content(file), file, dropped)]
    if not entries:
        raise SettingsError(f"FAQ {path}: holds no entry")
    if len(entries) > MAX_ENTRIES:
        raise SettingsError(f"FAQ {path}: holds {len(entries)} entries, all languages counted; at most {MAX_ENTRIES}")
    refuse_duplicates(entries, path)
    return entries


def read_files(path: Path) -> list[bytes]:
    """Return the contents of an FAQ file, or of all of a folder by name. Raises `SettingsError`."""
    return [_content(file) for file in _files(path)]


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise SettingsError(
            f"FAQ folder {path}: holds no .json file; make one: replyline faq read PAGES --out {path}/faq.json"
        )
    return files


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise SettingsError(f"FAQ file {path}: {error.strerror or error}; name an existing file or folder") from error


def entries_of(content: bytes, path: Path | str, dropped: Counter[str] | None = None) -> list[FaqEntry]:
    """Return the entries of an FAQ file's content; `path` is its name in what is raised, `SettingsError`."""
    counts = Counter[str]() if dropped is None else dropped
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SettingsError(f"FAQ file {path}: is UTF-16, by its first bytes; save it as UTF-8")
    try:
        records = msgspec.json.decode(content, type=list[_Record])
    except UnicodeDecodeError as error:
        raise SettingsError(f"FAQ file {path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise SettingsError(f"FAQ file {path}: {' '.join(str(error).split())}; {_FORM}") from error
    return [entry for record in records for entry in _in_each_language(record, path, counts)]


def _in_each_language(record: _Record, path: Path | str, dropped: Counter[str]) -> list[FaqEntry]:
    def visible(text: str) -> str:
        dropped.update(INVISIBLE.findall(text))
        return INVISIBLE.sub("", text)

    wordings: tuple[tuple[Language, _Wording | None], ...] = (("en", record.en), ("zh", record.zh))
    entries = [
        FaqEntry(
            id=record.id,
            topic=record.topic,
            language=language,
            question=visible(wording.question),
            alternatives=tuple(map(visible, wording.alternatives)),
            answer=visible(wording.answer),
            also=tuple(map(visible, wording.also)),
            url=wording.url,
        )
        for language, wording in wordings
        if wording is not None
    ]
    if not entries:
        raise SettingsError(f'FAQ file {path}: entry {shown(record.id)} has neither "en" nor "zh"')
    for entry in entries:
        asked = (entry.id, entry.topic, *entry.wordings)
        try:
            if entry.url:
                check_page(entry.url)
        except ValueError as error:
            name, url = f"entry {shown(entry.id)} ({entry.language})", shown(without_password(entry.url))
            raise SettingsError(f"FAQ file {path}: {name} has the url {url}; {error}") from None
        for text, most in (*((text, MAX_QUESTION_CHARS) for text in asked), (entry.answer, MAX_ANSWER_CHARS)):
            fault = fault_of(text, most)
            if fault is not None:
                raise SettingsError(f"FAQ file {path}: entry {shown(entry.id)} ({entry.language}) has {fault}")
    return entries


def refuse_duplicates(entries: Iterable[FaqEntry], path: Path) -> None:
    """Raise `SettingsError` for an id or a question that entries of `path` have twice."""
    ids: set[tuple[str, str]] = set()
    asked: dict[str, str] = {}
    for entry in entries:
        if (entry.id, entry.language) in ids:
            raise SettingsError(f"FAQ {path}: the id {shown(entry.id)} occurs twice")
        ids.add((entry.id, entry.language))
        for phrasing in entry.wordings:
            other = asked.setdefault(wording(plain_entry(phrasing)) or phrasing.strip(), entry.id)
            if other != entry.id:
                raise SettingsError(f"FAQ {path}: {shown(other)} and {shown(entry.id)} both ask {shown(phrasing)}")
