"""The words around an FAQ entry: an answer claims, a quote names what it quotes, and "I don't know" says what to do.

Pure. What a shop's FAQ says is shown in one of three ways:

    answer      the entry's answer; an opening "Yes" or "No" only where the entry bears it out for this question
    quote       'About "Do you ship abroad?": We deliver to …': the entry's answer under its own question, no claim
    don't know  that the help pages say nothing about it, and what can be done
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.faq.entries import FaqEntry, FaqHit
from shared.faq.speech.polarity import stands_alone, without_opening
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
    """Return the entry as an answer: without its opening "Yes" or "No" if that does not answer this question."""
    if hit.bears_opening:
        return hit.entry
    return msgspec.structs.replace(hit.entry, answer=without_opening(hit.entry.answer))


def can_answer(hit: FaqHit) -> bool:
    """Return whether the entry's answer can be given to this question: not one that is no sentence without a "Yes" or
    "No" that is not one to it."""
    return hit.bears_opening or stands_alone(hit.entry.answer)


def answer_text(entries: Sequence[FaqEntry], language: Language) -> str:
    """Return the entries' answers, with a line before them where they are not in the question's language."""
    lines = [_ELSEWHERE[language]] if any(entry.language != language for entry in entries) else []
    return "\n\n".join([*lines, *(entry.answer for entry in entries)])


def quote_text(hits: Sequence[FaqHit], language: Language, ways_on: WaysOn) -> str:
    """Return what the entries say about their own questions, without a claim that this answers the customer's, and the
    offer of a person."""
    quoted = [_ABOUT[language].format(question=hit.entry.question, answer=_quotable(hit.entry.answer)) for hit in hits]
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


def _quotable(answer: str) -> str:
    """Return the answer without an opening "Yes" or "No", if the rest is a sentence."""
    return without_opening(answer) if stands_alone(answer) else answer
