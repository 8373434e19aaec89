"""Ask which of two or three entries a customer means, and understand the reply. Pure.

The question is text, so that it works over every door and in a conversation that a client sends along:

    Which of these do you mean?
    1. How long does delivery take?
    2. How much does delivery cost?

A reply names one by its place ("1", "the first", 第一个), by its own words, or by words that only one of them has.
"""

import re
from collections import Counter
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
    r"(?:the )?(?:second|2nd)|(?:number |no |option )?(?:2|two)|第?[二两2](?:个|项|条|种|号)?",
    r"(?:the )?(?:third|3rd)|(?:number |no |option )?(?:3|three)|第?[三3](?:个|项|条|种|号)?",
)
"""Replies that name the first, the second or the third."""
_LAST: Final = r"(?:the )?(?:latter|last|bottom)|后者|后一个|后面那个|最后(?:一个)?"
_BOTH: Final = r"both(?: of (?:them|these))?|两个都(?:要|是|想问)?"
_ALL: Final = r"all(?: three)?(?: of (?:them|these))?|三个都(?:要|是|想问)?"
_EACH: Final = r"都要|都是|都想问"
_BEFORE: Final = "(?:i mean |yes |ok |选|我选|我要|要|是|就)?"
_BEHIND: Final = "(?: one| question)?(?: please| thanks)?[吧呢啊谢]*"
_REPLIES: Final = [re.compile(f"{_BEFORE}(?:{place}){_BEHIND}") for place in (*_PLACES, _LAST)]
_WHOLE: Final = {
    2: re.compile(f"{_BEFORE}(?:{_BOTH}|{_EACH}){_BEHIND}"),
    3: re.compile(f"{_BEFORE}(?:{_ALL}|{_EACH}){_BEHIND}"),
}
"""Replies that name each of the questions, by their number."""
_NEITHER: Final = re.compile(
    "(?:no )?(?:none|neither)(?: of (?:them|these|those|the two|the three))?(?: thanks)?"
    "|(?:[两三]个)?都不(?:是|对)|都没有"
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
    """Return the question that a reply means, or all of them; None where it asks something else.

    Args:
        reply: The customer's message, in plain characters.
        questions: The two or three that were offered.
    """
    if len(questions) not in _WHOLE:
        return None
    words = _words(reply)
    if _WHOLE[len(questions)].fullmatch(words):
        return " ".join(questions)
    for place, pattern in zip((0, 1, 2, -1), _REPLIES, strict=True):
        if place < len(questions) and pattern.fullmatch(words):
            return questions[place]
    for question in questions:
        if wording(reply) == wording(question):
            return question
    return _by_words(_terms(words), questions)


def says_neither(reply: str) -> bool:
    """Return whether a reply says that none of them is meant."""
    return _NEITHER.fullmatch(_words(reply)) is not None


def _words(text: str) -> str:
    return " ".join(_NO_WORD.sub(" ", fold(text)).split())


def _by_words(reply: set[str], questions: Sequence[str]) -> str | None:
    """Return the question that alone has words of the reply, where at most as many words are in none."""
    terms = [_terms(question) for question in questions]
    times = Counter(word for each in terms for word in each)
    found = [
        (question, own)
        for question, each in zip(questions, terms, strict=True)
        if (own := {word for word in reply & each if times[word] == 1})
    ]
    if len(found) != 1 or len(reply - times.keys()) > len(found[0][1]):
        return None
    return found[0][0]


def _terms(text: str) -> set[str]:
    matches = _WORD.finditer(fold(text))
    return {word for match in matches if (word := match[1] or match[0][:_STEM]) not in _STOP}
