"""Ask which of two entries a customer means, and understand the reply. Pure.

The question is text, so that it works over every door and in a conversation that a client sends along:

    Which of these do you mean?
    1. How long does delivery take?
    2. How much does delivery cost?

A reply names one by its place ("1", "the first", 第一个), by its own words, or by words that only one of them has.
"""

import re
from collections.abc import Sequence
from typing import Final

from shared.faq.terms import wording
from shared.faq.words.fold import fold
from shared.wire.messages import Language

_ASKS: Final[dict[Language, str]] = {"en": "Which of these do you mean?", "zh": "您想问的是哪一个？"}
_CHOICE: Final = re.compile(r"(?m)^\d\. (.+)$")
_PLACES: Final = (
    (
        r"(?:the )?(?:first|1st|former|top)|(?:number |no |option )?(?:1|one)"
        r"|第?[一1](?:个|项|条|种|号)?|前者|前一个|前面那个"
    ),
    (
        r"(?:the )?(?:second|2nd|latter|last|bottom)|(?:number |no |option )?(?:2|two)"
        r"|第?[二两2](?:个|项|条|种|号)?|后者|后一个|后面那个"
    ),
    r"both(?: of (?:them|these))?|两个都(?:要|是|想问)?|都要|都是|都想问",
)
"""Replies that name the first, the second, or both."""
_BEFORE: Final = "(?:i mean |yes |ok |选|我选|我要|要|是|就)?"
_BEHIND: Final = "(?: one| question)?(?: please| thanks)?[吧呢啊谢]*"
_REPLIES: Final = [re.compile(f"{_BEFORE}(?:{place}){_BEHIND}") for place in _PLACES]
_NEITHER: Final = re.compile(
    "(?:no )?(?:none|neither)(?: of (?:them|these|those|the two))?(?: thanks)?|(?:两个)?都不(?:是|对)|都没有"
)
_HAN: Final = r"\u3400-\u9fff"
_TOPIC: Final = re.compile(
    rf"\W*(?:[^\W\d_{_HAN}]+(?:['’-][^\W\d_{_HAN}]+)*\W*){{1,2}}|\W*(?:(?![吗呢谁几多怎哪么什能有])[{_HAN}]){{1,4}}\W*"
)
_NO_WORD: Final = re.compile(r"[^\w]+|_+")
_WORD: Final = re.compile(r"[a-z0-9]{2,}|(?=([\u4e00-\u9fff]{2}))")
_STEM: Final = 5
_STOP_TEXT: Final = "is it the of to my do does can you for in on and or what how when where a an i me"
_STOP: Final = frozenset(_STOP_TEXT.split())


def is_topic(text: str) -> bool:
    """Return whether a text is no question but a topic: one or two words, or up to four Chinese characters."""
    return _TOPIC.fullmatch(text) is not None


def clarifying_text(questions: Sequence[str], language: Language) -> str:
    """Return the text that asks which question is meant."""
    return "\n".join([_ASKS[language], *(f"{number}. {question}" for number, question in enumerate(questions, 1))])


def asked_by(answer: str) -> tuple[str, ...]:
    """Return the questions that a text of `clarifying_text` offers; none of any other text."""
    if not any(line in answer for line in _ASKS.values()):
        return ()
    return tuple(match[1].strip() for match in _CHOICE.finditer(answer))


def meant_by(reply: str, questions: Sequence[str]) -> str | None:
    """Return the question that a reply means, or both of them; None where it asks something else.

    Args:
        reply: The customer's message, in plain characters.
        questions: The two that were offered.
    """
    if len(questions) != len(_PLACES) - 1:
        return None
    words = _words(reply)
    for place, pattern in enumerate(_REPLIES):
        if pattern.fullmatch(words):
            return questions[place] if place < len(questions) else " ".join(questions)
    for question in questions:
        if wording(reply) == wording(question):
            return question
    return _by_words(_terms(words), *map(_terms, questions), questions=questions)


def says_neither(reply: str) -> bool:
    """Return whether a reply says that neither of the two is meant."""
    return _NEITHER.fullmatch(_words(reply)) is not None


def _words(text: str) -> str:
    return " ".join(_NO_WORD.sub(" ", fold(text)).split())


def _by_words(reply: set[str], first: set[str], second: set[str], *, questions: Sequence[str]) -> str | None:
    """Return the question that alone has words of the reply, where at most as many words are in neither."""
    found = reply & (first - second), reply & (second - first)
    other = reply - first - second
    if bool(found[0]) == bool(found[1]) or len(other) > len(found[0] or found[1]):
        return None
    return questions[0] if found[0] else questions[1]


def _terms(text: str) -> set[str]:
    matches = _WORD.finditer(fold(text))
    return {word for match in matches if (word := match[1] or match[0][:_STEM]) not in _STOP}
