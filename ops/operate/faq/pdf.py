"""Read a PDF as HTML: headings by the size of their letters, by bold type or by their numbers, paragraphs, lists."""

import io
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final

from pypdf import PdfReader
from pypdf.errors import PyPdfError

_HEADING_CHARS: Final = 120
_LARGER: Final = 1.15
_EDGE: Final = 0.1
"""The share of a page's height, at its top and at its bottom, where headers and footers are."""
_FEWEST_PAGES: Final = 3
_EDGE_SHARE: Final = 0.6
"""A line at the edge of more than this share of the pages is a header or a footer."""
_PAGE_NUMBER: Final = re.compile(r"(?<![\d.,])\d{1,4}(?![.,]?\d)")
_NEAR: Final = 4
_FULL: Final = 0.6
_FULL_AFTER_SENTENCE: Final = 0.85
"""A line continues in the next one if it has this share of the longest line near it."""
_LEAST_FULL: Final = 40
_WIDE: Final = 2
_LEAST_LEVEL: Final = 6
_NUMBERED: Final = re.compile(r"(\d+(?:\.\d+)+)\.?\s+\S")
_BULLET: Final = re.compile(r"^\s*(?:[•‣▪●◦∙·*–-]|\uf0b7|o(?= [A-Z]))\s+")
_SENTENCE_ENDS: Final = tuple(".!?。！？")
_NO_HEADING_ENDS: Final = (*".!。！;；,，:：", "...")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    size: float
    is_bold: bool
    is_at_edge: bool

    @property
    def width(self) -> int:
        return sum(1 if char.isascii() else _WIDE for char in self.text)


def read_pdf(data: bytes) -> tuple[str, str]:
    """Return a PDF's text as HTML, and a note on pages without text; empty if all have some.

    Raises:
        ValueError: with the reason and the remedy, if it has no text, needs a password, or is damaged
    """
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ValueError("needs a password; save it without one")
        pages = [_lines_of(page) for page in reader.pages]
    except (PyPdfError, KeyError, TypeError, AttributeError, IndexError, OverflowError, AssertionError) as error:
        raise ValueError(f"is a damaged PDF: {error or type(error).__name__}; save it again") from error
    without = sum(not page for page in pages)
    if without == len(pages):
        raise ValueError("has no text, only pictures: OCR is not done; export it with its text, or type its questions")
    note = f"has no text on {without} of {len(pages)} pages: OCR is not done" if without else ""
    lines = [line for page in _without_edges(pages) for line in page]
    return "\n".join(_html(lines, _sizes(lines))), note


def _lines_of(page: Any) -> list[_Line]:
    pieces: list[tuple[str, float, bool, float]] = []
    bottom, height = float(page.mediabox.bottom), float(page.mediabox.height)

    def visit(text: str, cm: Sequence[float], tm: Sequence[float], font: Any, size: float) -> None:
        scale = abs(tm[3] or tm[1]) * abs(cm[3] or cm[1])
        named = str((font or {}).get("/BaseFont", "")).lower()
        above = (tm[4] * cm[1] + tm[5] * cm[3] + cm[5] - bottom) / (height or 1.0)
        pieces.append((text, round(size * scale, 1), "bold" in named or "black" in named, above))

    page.extract_text(visitor_text=visit)
    lines, line = list[_Line](), list[tuple[str, float, bool, float]]()
    for text, size, is_bold, above in (*pieces, ("\n", 0.0, False, 0.0)):
        first, *others = text.split("\n")
        line.append((first, size, is_bold, above))
        for other in others:
            said = " ".join("".join(each for each, *_ in line).split())
            shown = [each for each in line if each[0].strip()]
            if said:
                is_at_edge = not _EDGE < shown[0][3] < 1 - _EDGE
                lines.append(_Line(said, max(each[1] for each in shown), all(each[2] for each in shown), is_at_edge))
            line = [(other, size, is_bold, above)]
    return lines


def _without_edges(pages: list[list[_Line]]) -> list[list[_Line]]:
    """Return the pages without headers and footers: lines at their edges that most pages have, but for the number."""
    if len(pages) < _FEWEST_PAGES:
        return pages
    seen = Counter(
        name
        for number, page in enumerate(pages)
        for name in {name for line in page if line.is_at_edge for name in _names(line, number)}
    )
    most = _EDGE_SHARE * sum(map(bool, pages))
    return [
        [line for line in page if not line.is_at_edge or all(seen[name] <= most for name in _names(line, number))]
        for number, page in enumerate(pages)
    ]


def _names(line: _Line, page: int) -> set[str]:
    """Return a line, and it again for each of its numbers, counted from the page's; and such a number at its end."""
    names = {line.text}
    for found in _PAGE_NUMBER.finditer(line.text):
        names.add(f"{line.text[: found.start()]}#{int(found[0]) - page}{line.text[found.end() :]}")
        if found.end() == len(line.text):
            names.add(f"#{int(found[0]) - page}")
    return names


def _sizes(lines: Sequence[_Line]) -> list[float]:
    """Return the sizes of letters from that of most of the text up, the largest last."""
    chars = Counter[float]()
    for line in lines:
        chars[line.size] += len(line.text)
    body = chars.most_common(1)[0][0] if chars else 0.0
    return [body, *sorted(size for size in chars if size >= body * _LARGER)]


def _level(line: _Line, sizes: list[float], *, bold_marks: bool) -> int | None:
    """Return the level of a heading; None for any other line."""
    if len(line.text) > _HEADING_CHARS or _BULLET.match(line.text) or not re.search(r"[^\W\d_]", line.text):
        return None
    if line.size in sizes[1:]:
        return min(_LEAST_LEVEL, len(sizes) - sizes.index(line.size))
    if line.text.endswith(_NO_HEADING_ENDS):
        return None
    if (numbered := _NUMBERED.match(line.text)) is not None:
        return min(_LEAST_LEVEL, numbered[1].count(".") + len(sizes))
    return min(_LEAST_LEVEL, len(sizes)) if line.is_bold and bold_marks else None


def _html(lines: Sequence[_Line], sizes: list[float]) -> Iterator[str]:
    """Yield the elements. Lines that are one heading, item or paragraph are joined."""
    bold_marks = statistics.fmean(line.is_bold for line in lines) < 1 / 2
    levels = [_level(line, sizes, bold_marks=bold_marks) for line in lines]
    place = 0
    while place < len(lines):
        line, level, end = lines[place], levels[place], place + 1
        while end < len(lines) and (
            levels[end] == level == 1 if level is not None else levels[end] is None and _continues(lines, end)
        ):
            line = replace(line, text=_joined(line.text, lines[end].text))
            end += 1
        text = escape(_BULLET.sub("", line.text) if level is None else line.text)
        tag = f"h{level}" if level is not None else "li" if _BULLET.match(line.text) else "p"
        yield f"<{tag}>{text}</{tag}>" if tag != "li" else f"<ul><li>{text}</li></ul>"
        place = end


def _continues(lines: Sequence[_Line], place: int) -> bool:
    """Return whether a line continues the line before it, which is as long as those around it."""
    before = lines[place - 1]
    if _BULLET.match(lines[place].text) or before.width < _LEAST_FULL:
        return False
    longest = max(line.width for line in lines[max(0, place - _NEAR) : place + _NEAR])
    return before.width >= longest * (_FULL_AFTER_SENTENCE if before.text.endswith(_SENTENCE_ENDS) else _FULL)


def _joined(before: str, line: str) -> str:
    if before.endswith("-") and line[:1].islower():
        return before[:-1] + line
    return before + line if not before[-1:].isascii() and not line[:1].isascii() else f"{before} {line}"
