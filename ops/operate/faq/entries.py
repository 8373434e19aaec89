"""Turn sections into FAQ entries, and say what was left out and why. Pure."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ops.operate.faq.files import LeftOut
from ops.operate.faq.sections import Section, is_short
from shared.facts import facts_in
from shared.faq.entries import FaqEntry
from shared.faq.terms import detect_language, seems_foreign, wording
from shared.faq.texts import INVISIBLE, MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, fault_of, shown
from shared.faq.words.fold import plain_entry

_SLUG_CHARS: Final = 40
_DIGEST_BYTES: Final = 4
_DECLARED: Final = ("en", "zh")
_FOREIGN_SHARE: Final = 0.8
_ENGLISH_SHARE: Final = 0.25
"""Of an English page's words 0.3 and more are function words of English, of another language's up to 0.18."""


@dataclass(slots=True)
class Entries:
    """`kept` in their order.

    Attributes:
        others: The FAQ's entries of other files, which keep their questions.
        before: The entries that were read earlier: what was added to their wordings stays.
    """

    others: Iterable[FaqEntry] = ()
    before: Iterable[FaqEntry] = ()
    left_out: list[LeftOut] = field(default_factory=list)
    _kept: dict[str, tuple[Section, FaqEntry]] = field(default_factory=dict)
    _conflicts: dict[str, Section] = field(default_factory=dict)

    @property
    def kept(self) -> list[FaqEntry]:
        added = {(entry.id, entry.language): (*entry.alternatives, *entry.also) for entry in self.before}
        asked = {*self._kept, *(wording(plain_entry(each)) for entry in self.others for each in entry.wordings)}
        entries = []
        for _, entry in self._kept.values():
            own = {wording(plain_entry(each)): each for each in added.get((entry.id, entry.language), ())}
            entries.append(
                msgspec.structs.replace(entry, alternatives=tuple(own[each] for each in own if each not in asked))
            )
            asked |= own.keys()
        return entries

    def add(self, sections: Sequence[Section]) -> None:
        """Add a page's sections, unless the page is in a language that the FAQ does not speak."""
        if not sections:
            return
        page, declared = sections[0].page, sections[0].language.partition("-")[0].partition("_")[0].lower()
        if declared not in _DECLARED if declared else _is_foreign(sections):
            named = f' ("{sections[0].language}")' if declared else ""
            self.left_out.append(LeftOut(page, "", f"is in neither English nor Chinese{named}"))
            return
        taken = {wording(plain_entry(asked)): entry.id for entry in self.others for asked in entry.wordings}
        for section in sections:
            self._add(section, taken)

    def _add(self, section: Section, taken: dict[str, str]) -> None:
        question, answer = (_visible(text) for text in (section.question, section.answer))
        asked = wording(plain_entry(question))
        if (why := _fault(section, question, answer)) is not None:
            self._leave_out(section, why)
        elif asked in taken:
            self._leave_out(section, f"is asked by the entry {shown(taken[asked])} of another file")
        elif asked in self._conflicts:
            self._leave_out(section, f"has other figures on {self._conflicts[asked].page}; correct one of them")
        elif asked not in self._kept:
            self._kept[asked] = section, _entry(section, question, answer)
        elif set(facts_in(self._kept[asked][1].answer)) != set(facts_in(answer)):
            other, _ = self._kept.pop(asked)
            self._conflicts[asked] = section
            self._leave_out(other, f"has other figures on {section.page}; correct one of them")
            self._leave_out(section, f"has other figures on {other.page}; correct one of them")
        elif wording(self._kept[asked][1].answer) != wording(answer):
            self._leave_out(section, f"is on {self._kept[asked][0].page} too, whose text is kept")

    def _leave_out(self, section: Section, why: str) -> None:
        self.left_out.append(LeftOut(section.page, section.question, why))


def encode(entries: Iterable[FaqEntry]) -> bytes:
    """Return entries as the content of an FAQ file."""
    records = [
        {
            "id": entry.id,
            "topic": entry.topic,
            entry.language: {"question": entry.question, "alternatives": entry.alternatives, "answer": entry.answer},
        }
        for entry in entries
    ]
    return msgspec.json.format(msgspec.json.encode(records), indent=2) + b"\n"


def _entry(section: Section, question: str, answer: str) -> FaqEntry:
    """Return a section as an entry, whose id stays while the page's name and the question do."""
    digest = hashlib.blake2b(f"{section.page}\0{question}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
    slug = re.sub(r"[^a-z0-9]+", "-", question.lower())[:_SLUG_CHARS].strip("-")
    return FaqEntry(
        id=f"{slug or 'page'}-{digest}",
        topic=_visible(section.topic)[:MAX_QUESTION_CHARS] or section.page,
        language=detect_language(f"{question}\n{answer}"),
        question=question,
        alternatives=(),
        answer=answer,
    )


def _fault(section: Section, question: str, answer: str) -> str | None:
    if is_short(section):
        return f"says only {shown(answer)}"
    for text, most in ((question, MAX_QUESTION_CHARS), (answer, MAX_ANSWER_CHARS)):
        if (fault := fault_of(text, most)) is not None:
            return f"has {fault}"
    if not wording(plain_entry(question)):
        return "has no word in English or Chinese"
    return None


def _is_foreign(sections: Sequence[Section]) -> bool:
    """Return whether most of a page seems to be in another language."""
    foreign = sum(len(each.answer) for each in sections if seems_foreign(each.answer, least_share=_ENGLISH_SHARE))
    return foreign > _FOREIGN_SHARE * sum(len(section.answer) for section in sections)


def _visible(text: str) -> str:
    return INVISIBLE.sub("", text).strip()
