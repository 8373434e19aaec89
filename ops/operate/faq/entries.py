"""Turn sections into FAQ entries, and say what was left out and why. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ops.operate.faq.blocks import Row
from ops.operate.faq.files import LeftOut
from ops.operate.faq.languages import is_foreign
from ops.operate.faq.sections import Section, is_short
from ops.operate.faq.state import answer_digest, key_of, learned_of, text_digest
from shared.facts import facts_in
from shared.faq.entries import FaqEntry, is_page
from shared.faq.terms import detect_language, wording
from shared.faq.texts import INVISIBLE, MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, fault_of, shown
from shared.faq.words.fold import plain_entry
from shared.nouns import counted
from shared.wire.messages import Language

_SLUG_CHARS: Final = 40
_DIGEST_BYTES: Final = 8
_OWN_ID: Final = re.compile(r"[a-z0-9-]+-[0-9a-f]{16}")


class Entries:
    """Collects the entries of pages. Call `add` for each page, then `finish` once."""

    def __init__(
        self,
        others: Mapping[str, Iterable[FaqEntry]],
        before: Sequence[FaqEntry] = (),
        learned: Mapping[str, str] | None = None,
    ) -> None:
        """Start without entries.

        Args:
            others: The entries of the FAQ's other files, by file name. A question of theirs is not added again.
            before: The entries that were read earlier. Wordings, languages and texts by people are kept.
            learned: The digests of their texts as they were learned, by `key_of`. An entry whose text is another was
                edited, and one that `before` has no more was removed.
        """
        self.learned: dict[str, str] = {}
        self._learned_before = learned or {}
        self.left_out: list[LeftOut] = []
        self._taken = {
            _asked(each): f"{shown(entry.id)} of {file} beside it"
            for file, entries in others.items()
            for entry in entries
            for each in entry.wordings
        }
        self._before = before
        self._kept: dict[str, tuple[Section, FaqEntry]] = {}
        self._conflicts: dict[str, Section] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def add(self, sections: Sequence[Section], *, is_stale: bool = False) -> None:
        """Add a page's sections, but not those in a language that the FAQ does not speak. Rows are judged singly.

        The questions of a stale page, which could not be read again, are only those that no other page has; add it
        last."""
        text = "\n".join(f"{section.question}\n{section.answer}" for section in sections if section.row is None)
        if text and is_foreign(text, sections[0].language):
            self.left_out.append(LeftOut(sections[0].page, "", _foreign(sections[0])))
            return
        for section in sections:
            if not is_stale or _asked(_visible(section.question)) not in self._kept:
                self._add(section)

    def _add(self, section: Section) -> None:
        question, answer = (_visible(text) for text in (section.question, section.answer))
        asked = _asked(question)
        if (why := _fault(section, question, answer)) is not None:
            self._leave_out(section, why)
        elif asked in self._taken:
            self._leave_out(section, f"is asked by the entry {self._taken[asked]}")
        elif asked in self._conflicts:
            self._leave_out(section, _conflict(self._conflicts[asked]))
        elif asked not in self._kept:
            entry = _entry(section, question, answer, asked)
            if (named := self._ids.setdefault((entry.id, entry.language), question)) != question:
                self._leave_out(section, f"has the id of {shown(named)}; give it another")
            else:
                self._kept[asked] = section, entry
        elif set(facts_in(self._kept[asked][1].answer)) != set(facts_in(answer)):
            other, _ = self._kept.pop(asked)
            self._conflicts[asked] = section
            self._leave_out(other, _conflict(section))
            self._leave_out(section, _conflict(other))
        elif wording(self._kept[asked][1].answer) != wording(answer):
            self._leave_out(section, f"is on {self._kept[asked][0].page} too, whose text is kept")

    def finish(self) -> list[FaqEntry]:
        """Return the entries, with what people added to the earlier ones or changed in them; set `learned`."""
        asked = {*self._kept, *self._taken}
        found = {
            (entry.id, entry.language): msgspec.structs.replace(entry, also=self._new_wordings(section, entry, asked))
            for section, entry in self._kept.values()
        }
        found = self._renamed(found)
        self.learned = learned_of(found.values())
        ids = {entry_id for entry_id, _ in found}
        for old in self._before:
            new = found.get((old.id, old.language))
            if new is None and old.id in ids:
                found[old.id, old.language] = old  # in a language that a person added
            elif new is not None:
                found[old.id, old.language] = self._merged(old, new, asked)
        places = {key_of(old): place for place, old in enumerate(self._before)}
        removed = self._learned_before.keys() - places.keys()
        kept = sorted(
            (entry for entry in found.values() if key_of(entry) not in removed),
            key=lambda entry: places.get(key_of(entry), len(places)),
        )
        if len(kept) < len(found):
            why = f"{counted(len(found) - len(kept), 'entry', 'entries')} that a person removed are not added again"
            self.left_out.append(LeftOut("the file", "", why))
        return kept

    def _renamed(self, found: Mapping[tuple[str, Language], FaqEntry]) -> dict[tuple[str, Language], FaqEntry]:
        """Return the entries by their ids; one whose question alone has changed keeps the id that it had."""
        gone = {
            (old.url, old.language, self._learned_before.get(key_of(old), text_digest(old)).split()[1]): old.id
            for old in self._before
            if (old.id, old.language) not in found
        }
        before = {(old.id, old.language) for old in self._before}
        kept = dict[tuple[str, Language], FaqEntry]()
        for (entry_id, language), entry in found.items():
            old_id = gone.pop((entry.url, language, answer_digest(entry)), entry_id)
            named = entry_id if (entry_id, language) in before else old_id
            kept[named, language] = msgspec.structs.replace(entry, id=named)
        return kept

    def _merged(self, old: FaqEntry, new: FaqEntry, asked: set[str]) -> FaqEntry:
        """Return a learned entry with the wordings that people added to it, and with their text if they changed it."""
        wordings = {
            name: (*getattr(new, name), *(each for each in getattr(old, name) if _asked(each) not in asked))
            for name in ("alternatives", "also")
        }
        asked.update(_asked(each) for name in wordings for each in wordings[name])
        learned = self._learned_before.get(key_of(old), text_digest(old))
        if learned != text_digest(old):
            if learned != text_digest(new):
                why = "has changed on its page; the text that a person gave it stays: edit it, or remove it"
                self.left_out.append(LeftOut(new.url or "a page", old.question, why))
                self.learned[key_of(old)] = learned
            new = msgspec.structs.replace(new, question=old.question, answer=old.answer)
        return msgspec.structs.replace(new, **wordings)

    def _new_wordings(self, section: Section, entry: FaqEntry, asked: set[str]) -> tuple[str, ...]:
        """Return the wordings that no other entry has, and add them to `asked`; the others are left out."""
        new = []
        for each in {_asked(text): _visible(text) for text in entry.also}.values():
            if (fault := fault_of(each, MAX_QUESTION_CHARS)) is not None:
                self.left_out.append(LeftOut(section.page, entry.question, f"a wording has {fault}"))
            elif _asked(each) and _asked(each) not in asked:
                asked.add(_asked(each))
                new.append(each)
            elif _asked(each) != _asked(entry.question):
                self.left_out.append(LeftOut(section.page, entry.question, f"its wording {shown(each)} is another's"))
        return tuple(new)

    def _leave_out(self, section: Section, why: str) -> None:
        self.left_out.append(LeftOut(section.page, section.question, why))


def not_read(entries: Iterable[FaqEntry]) -> FaqEntry | None:
    """Return an entry that was not read from a page, by its id; None if all were."""
    return next((entry for entry in entries if not _OWN_ID.fullmatch(entry.id)), None)


def encode(entries: Iterable[FaqEntry]) -> bytes:
    """Return entries as the content of an FAQ file."""
    records: dict[str, dict[str, Any]] = {}
    for entry in entries:
        record = records.setdefault(entry.id, {"id": entry.id, "topic": entry.topic})
        record[entry.language] = {
            "question": entry.question,
            "alternatives": entry.alternatives,
            "answer": entry.answer,
            **({"also": entry.also} if entry.also else {}),
            **({"url": entry.url} if entry.url else {}),
        }
    return msgspec.json.format(msgspec.json.encode(list(records.values())), indent=2) + b"\n"


def _asked(text: str) -> str:
    return wording(plain_entry(text))


def _entry(section: Section, question: str, answer: str, asked: str) -> FaqEntry:
    """Return a section as an entry. Its id stays while the question does, or the id that a table's row gives it."""
    row = section.row or Row()
    digest = hashlib.blake2b((row.id or asked).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    slug = re.sub(r"[^a-z0-9]+", "-", (row.id or question).lower())[:_SLUG_CHARS].strip("-")
    page = row.url or section.page
    topic = " ".join(_visible(section.topic).split())[:MAX_QUESTION_CHARS]
    return FaqEntry(
        id=f"{slug or 'page'}-{digest}",
        topic=topic if fault_of(topic, MAX_QUESTION_CHARS) is None else "pages",
        language=detect_language(f"{question}\n{answer}"),
        question=question,
        alternatives=(),
        answer=answer,
        also=row.also,
        url=page if is_page(page) else "",
    )


def _fault(section: Section, question: str, answer: str) -> str | None:
    if section.row is None and is_short(section):
        return f"says only {shown(answer)}"
    for text, most in ((question, MAX_QUESTION_CHARS), (answer, MAX_ANSWER_CHARS)):
        if (fault := fault_of(text, most)) is not None:
            return f"has {fault}"
    if not _asked(question):
        return "has no word in English or Chinese"
    if is_foreign(f"{question}\n{answer}", section.language if section.row is not None else ""):
        return _foreign(section)
    return None


def _foreign(section: Section) -> str:
    named = f" (it says {shown(section.language)})" if section.language else ""
    return f"is in neither English nor Chinese{named}"


def _conflict(other: Section) -> str:
    return f"has other figures on {other.page}; correct one of them"


def _visible(text: str) -> str:
    return INVISIBLE.sub("", text).replace("\ufeff", "").strip()
