"""Convert HTML to the text that a browser would show. Quotations become lines that begin with ">". Pure."""

import re
from html import unescape
from html.entities import html5
from html.parser import HTMLParser
from typing import Final

_INLINE_TEXT: Final = "a abbr b big code del em font i ins label mark s small span strike strong sub sup u"
_BLOCK_TEXT: Final = """
article blockquote body br button center dd details div dl dt fieldset footer form h1 h2 h3 h4 h5 h6 header hr html
iframe img input li link main meta nav object ol option p pre section select summary svg table tbody td textarea tfoot
th thead tr ul video
"""
# Elements that often have no end; another one without end and attributes is a word: "Press <menu>".
_ALONE_TEXT: Final = "body br dd div dt hr html li p tbody td tfoot th thead tr"
_ALONE: Final = frozenset(_ALONE_TEXT.split())
_INLINE: Final = frozenset(_INLINE_TEXT.split())
_BLOCK: Final = frozenset(_BLOCK_TEXT.split())
_UNSEEN: Final = frozenset(("head", "script", "style", "template", "title"))
ELEMENTS: Final = "|".join(sorted(_INLINE | _BLOCK | _UNSEEN, key=len, reverse=True))
# "<b and c>" is no element: its words have no values.
_ATTRIBUTES: Final = (
    r"(?:\s+(?:async|checked|controls|defer|disabled|hidden|multiple|noshade|nowrap|open|required|reversed|selected)\b)*"
    r"(?:\s+[\w:.@-]+\s?=[^<>]*)?\s*"
)
TAG: Final = re.compile(rf"</?(?:{ELEMENTS}){_ATTRIBUTES}/?>|<!--|<!doctype|</?[movwx]:\w[^<>]*>", re.IGNORECASE)
_SEEMS_TAG: Final = re.compile(rf"<(/?)({ELEMENTS})\b[^<>]*>", re.IGNORECASE)
_CODE: Final = re.compile(r"`[^`\n]{1,80}`")
ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});|&nbsp\b", re.IGNORECASE)
# What makes the parser search the same text again and again, or raise: a sign that opens nothing, comments, sections.
_COMMENT: Final = re.compile(r"<!--(?:(?!<!--|-->).)*(?:-->|$)|<!\[[^<>]*>", re.DOTALL)
_OPENS_NOTHING: Final = re.compile(r"<(?![a-zA-Z/!?][^<>]*>)|<!\[")
# Of a longer message the parser reads no more: it takes 0.1 µs a character.
_MAX_CHARS: Final = 20_000
_MOST_ESCAPES: Final = 4


def without_markup(text: str) -> str:
    """Return a text without tags and entities, also where they were escaped again. A text that only looks like HTML
    ("5 < 6", "<you@shop.example>", "R&D;") stays; so does one that would leave nothing to read."""
    for _ in range(_MOST_ESCAPES):
        if TAG.search(markup := elements_of(text)):
            reader = _MarkupReader(_COMMENT.sub("", markup[:_MAX_CHARS]))
            if not any(map(str.isalnum, reader.text)):
                return text
            text = reader.text
        elif ENTITY.search(text):
            text = ENTITY.sub(_character, text)
        else:
            break
    return text


def elements_of(text: str) -> str:
    """Return a text in which only elements of HTML have their "<": it is "&lt;" in code ("`<a>`"), before words
    ("x <b and c> d") and where an element has no start or no end."""
    text = _CODE.sub(lambda code: code[0].replace("<", "&lt;"), text)
    halves = {(tag[1], tag[2].lower()) for tag in _SEEMS_TAG.finditer(text) if TAG.fullmatch(tag[0])}

    def kept(tag: re.Match[str]) -> str:
        end, name = tag[1], tag[2].lower()
        whole = name in _ALONE or "=" in tag[0] or tag[0].endswith("/>") or ("" if end else "/", name) in halves
        return tag[0] if whole and TAG.fullmatch(tag[0]) else f"&lt;{tag[0][1:]}"

    return _SEEMS_TAG.sub(kept, text)


def entity_in(text: str) -> str | None:
    """Return the first entity of HTML in a text, or None."""
    return next((found[0] for found in ENTITY.finditer(text) if found[0][1] == "#" or found[0][1:] in html5), None)


def _character(entity: re.Match[str]) -> str:
    return unescape(entity[0])


def _closed(markup: str) -> str:
    """Return markup in which the start of an unseen element that never ends is text: "It says <script> error"."""
    for tag in _UNSEEN:
        rest = max(markup.lower().rfind(f"</{tag}"), 0)
        markup = markup[:rest] + re.sub(rf"<(?={tag}\b)", "&lt;", markup[rest:], flags=re.IGNORECASE)
    return markup


class _MarkupReader(HTMLParser):
    """Collects what would be shown, in `text`."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self._shown: list[str] = []
        self._unseen = self._quotes = 0
        self._in_lines = re.search(r"<(?:br|p|div|html|body|td)\b", markup, re.IGNORECASE) is None
        self.feed(_OPENS_NOTHING.sub(lambda sign: f"&lt;{sign[0][1:]}", _closed(markup)))
        self.close()
        self.text = "".join(self._shown)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the parser's signature
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag in _BLOCK:
            self._quotes += tag == "blockquote"
            self._break_line()
        elif tag not in _INLINE and tag[1:2] != ":":  # as in Word's "<o:p>"
            self.handle_data(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(self._unseen - 1, 0)
        elif tag in _BLOCK:
            self._quotes = max(self._quotes - (tag == "blockquote"), 0)
            self._break_line()

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag not in _UNSEEN and tag != "blockquote":
            self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._shown.append(data if self._in_lines else re.sub(r"[ \t\r\n]+", " ", data))

    def _break_line(self) -> None:
        self._shown.append("\n" + "> " * self._quotes)
