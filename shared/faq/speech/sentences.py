"""Find the ends of sentences in a text that is still being generated. Pure.

A sentence end is reported only when the characters after it prove it, because a full stop may also be part of a number
(14.00), an abbreviation ("No. 5"), a code or a link. So the result is the same however the text is cut into pieces, and
an end that was reported is never withdrawn.
"""

import re
from typing import Final, NamedTuple

MAX_CHARS: Final = 240
"""A sentence without an end is cut at a clause before it exceeds this length."""
LOOKAHEAD_CHARS: Final = 40
"""So much more is read before it is cut."""

_CLOSING: Final = r"[\"'”’»」』）)\]*_]"
_CANDIDATE: Final = re.compile(
    rf"[.!?…]+{_CLOSING}{{0,4}}(?=[\s\u3000-\u9fff])"
    rf"|[。！？]+[。！？.!?…”’」』）)\"'*]{{0,4}}(?=[^。！？.!?…”’」』）)\"'*])"
    r"|\n"
)
_MARK: Final = re.compile(r"[.!?…。！？\n]")
_LEADING: Final = re.compile(r"\s*")
_WORD_BEFORE: Final = re.compile(r"(?<![\w.-])(?:[A-Za-z]+(?:\.[A-Za-z])*|\(?\d{1,2})$")
_ABBREVIATIONS: Final = frozenset(
    ("e.g", "i.e", "approx", "mr", "mrs", "ms", "dr", "prof", "vs", "incl", "excl", "ca", "cf", "st", "max", "min")
)
_BEFORE_NUMBERS: Final = frozenset(("no", "nr", "nos", "art", "fig", "p", "pp"))
_BEFORE_NAMES: Final = frozenset(("a.m", "p.m", "etc", "inc", "ltd", "co"))
_CLAUSE: Final = re.compile(r"[,;:](?=\s)|[，；：](?=.)", re.DOTALL)
_SPACE: Final = re.compile(r"(?<=[^\W\d])(?=[ \t][^\W\d])")


class Cut(NamedTuple):
    """The first `length` characters are to be judged together; `whole`: they end a sentence."""

    length: int
    whole: bool


def next_cut(text: str) -> Cut | None:
    """Return where the first sentence of a text that still grows ends; None where that cannot be said yet. Space before
    a sentence belongs to it."""
    window = text[: MAX_CHARS + LOOKAHEAD_CHARS]
    leading = _LEADING.match(window)
    assert leading is not None, "it matches nothing, too"
    for match in _CANDIDATE.finditer(window, leading.end()):
        if match[0] == "." and window[match.end()].isspace():
            verdict = _ends_at_point(window, match.start(), leading.end())
            if verdict is None:
                break
            if not verdict:
                continue
        return Cut(match.start() if match[0] == "\n" else match.end(), whole=True)
    if len(window) < MAX_CHARS + LOOKAHEAD_CHARS:
        return None
    return Cut(_clause_end(window, leading.end()), whole=False)


def may_end(text: str) -> bool:
    """Return whether there is a mark in it that may end a sentence: without one, `next_cut` need not be asked before
    `MAX_CHARS`."""
    return _MARK.search(text) is not None


def sentences(text: str) -> list[str]:
    """Return a whole text's sentences, each with the space before it; together they are the text."""
    parts: list[str] = []
    while (cut := next_cut(text)) is not None:
        parts.append(text[: cut.length])
        text = text[cut.length :]
    return [*parts, text] if text else parts


def _ends_at_point(window: str, at: int, start: int) -> bool | None:
    """Return whether the point at `at` ends a sentence; None where it depends on what is not there yet."""
    before = _WORD_BEFORE.search(window, max(start, at - 12), at)
    if before is None:
        return True
    word = before[0].lower()
    if word[-1].isdecimal():
        return before.start() > start  # "1." opens a line
    if word in _ABBREVIATIONS or (len(word) == 1 and before[0].isupper()):
        return False
    if word not in _BEFORE_NUMBERS and word not in _BEFORE_NAMES:
        return True
    following = window[at + 1 :].lstrip()[:1]
    if not following:
        return None
    return not following.isdecimal() if word in _BEFORE_NUMBERS else not following.islower()


def _clause_end(window: str, start: int) -> int:
    """After the last clause that ends in time, else between the last two words, else anywhere."""
    for pattern in (_CLAUSE, _SPACE):
        ends = [match.end() for match in pattern.finditer(window, start + 1, MAX_CHARS)]
        if ends:
            return ends[-1]
    return MAX_CHARS
