"""Find whether a question is one of an entry's wordings but for words that ask for nothing. Pure.

"Can I change my delivery address?" is "Can I change the delivery address?", and "Do you ship to Norway?" is one option
of "ship to Switzerland or Norway". The decision's measures are of weights of terms, and are unsure of both.
"""

import re
from collections.abc import Iterator
from typing import Final

from shared.faq.speech.polarity import denies
from shared.faq.words.fold import fold

# Two texts with an equal core ask the same.
Core = frozenset[str]

_LIGHT_TEXT: Final = """
a an the my your our their this that these those some any i we you it me us there please hi hello hey thanks
do does did can could may might will would should is are am be to of for in on at have has get got want like need how
something anything item product thing article and also plus then
"""
_LIGHT: Final = frozenset(_LIGHT_TEXT.split())
# "How long" asks for something else than "how": the second word counts.
# "What's your return policy?" asks what the bare wording "return policy" does.
_WHAT_IS: Final = re.compile(r"\bwhat(?:'s| is| are) (?=your\b|the\b)")
_WORD: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[\u3400-\u9fff]+")
_OR: Final = re.compile(r"\b([\w-]+) or ([\w-]+)\b")
_HAN_OR: Final = re.compile(r"([\u3400-\u9fff]{2,4})(?:、|或者|或|还是)")
_HAN_LIGHT: Final = re.compile(
    r"是什么|请问|另外|此外|顺便|对了|你们|您们|您|你|我们|我的|我|可不可以|能不能|可以|能|吗|呢|吧|啊|呀|了|的|一下|是否|想要|想|亲|到"
)
_DENIES: Final = "not "
_LEAST_WORDS: Final = 2
_LEAST_HAN: Final = 3


def core_of(text: str) -> Core:
    """Return the words of a text that say what it asks, in plain characters, and `_DENIES` if it denies. Empty if too
    few are left to know the question by."""
    words = _WORD.findall(_HAN_LIGHT.sub("", _WHAT_IS.sub("", fold(text))))
    core = {word.removesuffix("'s").removesuffix("s") for word in words if word not in _LIGHT}
    if len(core) < _LEAST_WORDS and sum(len(word) for word in core if not word.isascii()) < _LEAST_HAN:
        return frozenset()
    return frozenset(core | {_DENIES} if denies(text) else core)


def cores_of(wording: str) -> frozenset[Core]:
    """Return the core of a wording, and of one that names two options the core with either alone."""
    return frozenset(core for option in _options(wording) if (core := core_of(option)))


def _options(wording: str) -> Iterator[str]:
    yield wording
    for match in _OR.finditer(wording):
        for option in match.groups():
            yield wording[: match.start()] + option + wording[match.end() :]
    for match in _HAN_OR.finditer(wording):
        option, after = match[1], wording[match.end() :]
        for length in range(_LEAST_WORDS, len(option) + 1):  # nothing marks where an option begins or ends
            yield wording[: match.end(1) - length] + after
            yield wording[: match.end(1)] + after[length:]
