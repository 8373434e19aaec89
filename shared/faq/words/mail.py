"""Find, in a mail, the words that its sender wrote: no quotation, signature or disclaimer, as mail programs of many
languages add them. Pure, and by lines; what introduces each is listed in `mail.json`.

Answers below or between quotations count as those above them. A mail without own words counts as a whole, but
for the lines that introduce a quotation.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

_TABLE: Final = msgspec.json.decode(Path(__file__).with_name("mail.json").read_bytes(), type=dict[str, list[str]])


def _any_of(*names: str) -> str:
    """Return a pattern of the lists' phrases, the longer ones first; "*" matches a few words."""
    phrases = sorted((phrase for name in names for phrase in _TABLE[name]), key=len, reverse=True)
    return "(?:" + "|".join(re.escape(phrase).replace(r"\*", "[^?]{0,40}") for phrase in phrases) + ")"


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_QUOTED: Final = re.compile(r"\s*(?:>|\|\s)")
# "From: Shop", one of two such lines at least. Outlook writes the names in bold, which text has as asterisks.
_SENDER: Final = _pattern(rf"[\s*_]*{_any_of('from')}[\s*_]*:")
_HEADER: Final = _pattern(rf"[\s*_]*{_any_of('from', 'headers')}[\s*_]*:")
_MOST_HEADER_LINES: Final = 6
_SEPARATOR: Final = _pattern(
    rf"\s*[-_=*]{{2,}}\s*(?:{_any_of('separators')}.{{0,60}}|original\s*[-_=*]{{2,}}\s*)$|[\s#-]*{_any_of('forwards')}[\s#-]*:?\s*$"
)
# "On Mon, 3 Nov 2026 at 10:12, Shop <help@shop.example> wrote:", on up to three lines.
_OPENS_INTRODUCTION: Final = _pattern(rf"\s*(?:(?:{_any_of('openers')}\b|\d).{{0,160}}\d|\d{{4}})")
_WROTE: Final = _pattern(rf"(?:^|\W|(?<=[^\x00-\x7f])){_any_of('wrote')}(?:$|\W)")
_ADDRESS: Final = re.compile(r"\S@\w")
_MOST_INTRODUCTION_CHARS: Final = 240
_MOST_INTRODUCTION_LINES: Final = 3

_DELIMITER: Final = re.compile(r"\s*(?:--|__|—)\s*$")
_SENT_FROM: Final = _pattern(rf"(?:^|(?<=[.?!。])|(?<=  ))\s*{_any_of('sent_from')}[.\s]*$")
_DISCLAIMER: Final = _pattern(_any_of("disclaimers"))
_GREETING: Final = _pattern(
    rf"\s*{_any_of('greetings')}(?:(?:[ ,/]+[a-zà-ÿ0-9&.'-]+){{0,4}}\s*[,:、]+|(?: [a-zà-ÿ]+)?\s*[.!。]*)\s*$"
)
_CLOSING: Final = _pattern(rf"\s*{_any_of('closings')}(?: for (?:your|the|any) [a-z ]{{2,30}})?\s*[,.!。、]*\s*$")
_NAME: Final = re.compile(r"\W*(?:[^\s.?!]{1,20}\.?(?:\s+|$)){1,4}$")
_FULL_NAME: Final = re.compile(
    r"\s*(?!(?:Humans?|Agent|Person|People|Operator|Representative|Manager|Supervisor|Staff|Support|Help|Urgent|Refund)\b)"
    r"(?:[A-Z][a-zà-ÿ'.-]+(?:\s+|$)){1,3}(?:\|.*)?$"
)
# Two or three Chinese characters may be a question or a wish ("要多久", "转人工"): a name only above an address.
_ANY_NAME: Final = re.compile(rf"(?:{_FULL_NAME.pattern})|\s*[\u4e00-\u9fff]{{2,3}}\s*$")
_OF_A_SIGNATURE: Final = re.compile(r"(?!\s*[Pp]\.?\s?[Ss]\b)[^?]{0,80}$")
_MOST_SIGNATURE_LINES: Final = 8
_QUESTION: Final = re.compile(r"[?؟](?:\W|$)")


def own_words(text: str) -> str:
    """Return the words of a mail that are its sender's own, never nothing."""
    lines = text.split("\n")
    if len(lines) == 1 and not _QUOTED.match(text):
        return _SENT_FROM.sub("", text) or text
    own = "\n".join(_own(lines)).strip()
    if own:
        return own
    bare = [line.lstrip("> |") for line in lines]
    return "\n".join(line for line in bare if not _HEADER.match(line) and not _SEPARATOR.match(line)).strip() or text


def _own(lines: Sequence[str]) -> list[str]:
    own, greeting, asks = list[str](), list[str](), _asking(lines)
    at = signature = 0
    while at < len(lines):
        line = lines[at]
        introduction = _introduction(lines, at)
        if _SEPARATOR.match(line) or _begins_headers(lines, at) or (own and _DELIMITER.match(line) and not asks[at]):
            break
        if introduction and not _QUOTED.match(_next(lines, at + introduction)):
            break
        if introduction or _QUOTED.match(line):
            signature = 0
        elif _DISCLAIMER.search(line):
            introduction = next((end for end in range(at, len(lines)) if not lines[end].strip()), len(lines)) - at
        elif not own and _GREETING.match(line):
            greeting.append(line)
        elif own and (begun := _signature(lines, at, own[-1])) is not None:
            signature = begun
        elif signature and _OF_A_SIGNATURE.match(line):
            signature -= 1
        elif line.strip(" \t-_=*—"):
            own.append(_SENT_FROM.sub("", line))
        at += max(introduction, 1)
    return own if any(map(str.strip, own)) else greeting


def _asking(lines: Sequence[str]) -> list[bool]:
    """Return, of each line, whether a question comes from there on and before any quotation: no signature asks."""
    asks = [False] * (len(lines) + 1)
    for at in reversed(range(len(lines) if any(map(_DELIMITER.match, lines)) else 0)):
        line = lines[at]
        if (asks[at + 1] or _QUESTION.search(line)) and not _QUOTED.match(line) and not _SEPARATOR.match(line):
            asks[at] = not _introduction(lines, at) and not _begins_headers(lines, at)
    return asks


def _signature(lines: Sequence[str], at: int, before: str) -> int | None:
    """Return the most lines that a signature has after this one, or None if this line begins no signature. `before` is
    the sender's last own line."""
    if _CLOSING.match(lines[at]):
        return _MOST_SIGNATURE_LINES if _NAME.match(_next(lines, at + 1) or "?") else 0
    named = _FULL_NAME if not _ADDRESS.search(_next(lines, at + 1)) else _ANY_NAME
    is_apart = before.rstrip().endswith("?") and not lines[at - 1].strip(" _-")
    return _MOST_SIGNATURE_LINES if is_apart and named.match(lines[at]) else None


def _next(lines: Sequence[str], at: int) -> str:
    """Return the next line that is not blank, or ""."""
    return next((line for line in map(lines.__getitem__, range(at, len(lines))) if line.strip()), "")


def _introduction(lines: Sequence[str], at: int) -> int:
    """Return the number of lines from index `at` that introduce a quotation; 0 if these lines do not."""
    for num in range(1, _MOST_INTRODUCTION_LINES + 1):
        chunk = lines[at : at + num]
        if not all(map(str.strip, chunk)) or any(map(_QUOTED.match, chunk)):
            return 0
        if num > 1 and (not _OPENS_INTRODUCTION.match(chunk[0]) or _introduces("".join(chunk[1:]), quoted=False)):
            return 0
        if _introduces(" ".join(chunk), quoted=_QUOTED.match(_next(lines, at + num)) is not None):
            return num
    return 0


def _introduces(text: str, *, quoted: bool) -> bool:
    """Return whether a text names the date and the author of what follows. `quoted`: a quotation does follow."""
    if not text.rstrip().endswith(":") or len(text) > _MOST_INTRODUCTION_CHARS:
        return False
    dated, addressed = any(map(str.isdigit, text)), _ADDRESS.search(text) is not None
    return (dated and (addressed or _WROTE.search(text) is not None)) or (quoted and (dated or addressed))


def _begins_headers(lines: Sequence[str], at: int) -> bool:
    """Return whether the head of a quoted mail begins here: two header lines, one of them the sender's, with an address
    or a date."""
    if not _HEADER.match(lines[at]):
        return False
    block = [line for line in lines[at : at + _MOST_HEADER_LINES] if _HEADER.match(line)]
    return (
        len(block) > 1
        and any(map(_SENDER.match, block))
        and any(char == "@" or char.isdigit() for line in block for char in line)
    )
