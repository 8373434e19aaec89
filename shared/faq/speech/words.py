"""The words around an FAQ entry: an answer claims, a quote names what it quotes, and "I don't know" says what to do.

Pure. What a shop's FAQ says is shown in one of three ways:

    answer      the entry's answer; an opening "Yes" or "No" only where the entry bears it out for this question
    quote       'About "Do you ship abroad?": We deliver to …': the sentence that fits best first, no claim
    don't know  that the help pages say nothing about it, and what can be done
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.faq.entries import FaqEntry, FaqHit
from shared.faq.speech.polarity import opening_of, without_opening
from shared.faq.speech.sentences import sentences
from shared.wire.messages import Language

_ABOUT: Final[dict[Language, str]] = {"en": "About “{question}”: {answer}", "zh": "关于“{question}”：{answer}"}
_UNKNOWN: Final[dict[Language, str]] = {
    "en": "I don't know that: our help pages say nothing about it.",
    "zh": "这个问题我不清楚，帮助中心没有相关内容。",
}
_OTHER_WORDS: Final[dict[Language, str]] = {
    "en": "You can ask it again in other words.",
    "zh": "您可以换个说法再问一次。",
}
_FOREIGN: Final = "I don't know that. I understand English and Chinese only: please ask me in one of them."
_ELSEWHERE: Final[dict[Language, str]] = {
    "en": "I have this in another language only:",
    "zh": "这方面的内容目前只有其他语言的版本：",
}
OFFER: Final[dict[Language, str]] = {
    "en": "A person can help you: just say that you would like to talk to one.",
    "zh": "人工客服可以帮您：直接说“转人工客服”即可。",
}
_BUSY: Final[dict[Language, str]] = {
    "en": "Sorry, we are very busy right now. Please ask me again in a moment.",
    "zh": "抱歉，现在咨询的人较多。请稍后再试一次。",
}
# A sentence that opens so refers to the one before it, and is not shown without that.
_REFERS: Final = re.compile(
    r"\s*(?:it|its|they|their|this|that|these|those|he|she|there|then|but|and|or|so|also|otherwise|instead|both|else"
    r"|after that|in that case)\b|\s*(?:它|其|这|那|他|她|但|而|也|还|否则|另外|此外|然后|则|均|都|并)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class WaysOn:
    """What a customer can do where no answer is claimed.

    Attributes:
        handoff: A person can be asked for.
        contact: The shop's own line by language: the help page's address, opening hours.
    """

    handoff: bool = False
    contact: Mapping[Language, str] = field(default_factory=dict)

    def offer(self, language: Language) -> list[str]:
        """Return the offer of a person; nothing if none can be asked for."""
        return [OFFER[language]] if self.handoff else []

    def lines(self, language: Language) -> list[str]:
        """Return the shop's own line and the offer of a person."""
        line = self.contact.get(language)
        return [*([line] if line else []), *self.offer(language)]


def claimed(hit: FaqHit) -> FaqEntry:
    """Return the entry as an answer: without its opening "Yes" or "No" where that is not one to this question."""
    if hit.bears_opening:
        return hit.entry
    return msgspec.structs.replace(hit.entry, answer=without_opening(hit.entry.answer))


def says_only_yes_or_no(entry: FaqEntry) -> bool:
    """Return whether an answer is nothing but "Yes" or "No"."""
    opening = opening_of(entry.answer)
    return opening is not None and not entry.answer[opening.stop :].strip()


def answer_text(entries: Sequence[FaqEntry], language: Language) -> str:
    """Return the entries' answers, with a line before them where they are not in the question's language."""
    lines = [_ELSEWHERE[language]] if any(entry.language != language for entry in entries) else []
    return "\n\n".join([*lines, *(entry.answer for entry in entries)])


def quote_text(hits: Sequence[FaqHit], language: Language, ways_on: WaysOn) -> str:
    """Return what the entries say about their own questions, without a claim that this answers the customer's, and the
    offer of a person."""
    quoted = [
        _ABOUT[language].format(question=hit.entry.question, answer=_fitting_first(hit.entry.answer, hit.sentence))
        for hit in hits
    ]
    return "\n\n".join([*quoted, *ways_on.offer(language)])


def unknown_text(language: Language, ways_on: WaysOn, *, foreign: bool) -> str:
    """Return that nothing is known, and what the customer can do.

    Args:
        language: The question's.
        ways_on: What the customer can do.
        foreign: Whether the question seems to be in a language that the FAQ does not have.
    """
    if foreign:
        return "\n\n".join([_FOREIGN, *ways_on.lines(language)])
    return "\n\n".join([_UNKNOWN[language], *(ways_on.lines(language) or [_OTHER_WORDS[language]])])


def busy_text(language: Language, ways_on: WaysOn) -> str:
    """Return that there is no time for an answer, and what the customer can do."""
    return "\n\n".join([_BUSY[language], *ways_on.lines(language)])


def says_busy(text: str) -> bool:
    """Return whether a text is that of `busy_text`."""
    return text.startswith(tuple(_BUSY.values()))


def _fitting_first(answer: str, place: int) -> str:
    """Return the answer without an opening "Yes" or "No", the sentence at `place` first. A sentence that refers to the
    one before it is moved with it."""
    parts = [part.strip() for part in sentences(answer) if part.strip()]
    if not parts:
        return answer
    if opening_of(parts[0]) is not None:
        bare = without_opening(parts[0])
        parts[0] = "" if bare == parts[0] and len(parts) > 1 else bare
    start = min(place, len(parts) - 1)
    while start > 0 and _REFERS.match(parts[start]):
        start -= 1
    stop = start + 1
    while stop < len(parts) and _REFERS.match(parts[stop]):
        stop += 1
    ordered = [*parts[start:stop], *parts[:start], *parts[stop:]]
    return _joined([part for part in ordered if part])


def _joined(parts: Sequence[str]) -> str:
    text = ""
    for part in parts:
        text += (" " if text and text[-1].isascii() else "") + part
    return text
