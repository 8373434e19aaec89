"""Cut pages into sections, each a question with its answer. Pure.

The path of headings is a section's question ("Returns – Fees"); a heading that is a question is one by itself. A long
section is cut at its paragraphs. A paragraph that most pages have is read once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from ops.operate.faq.blocks import Asked, Block, Heading, Row, Text
from ops.operate.faq.files import Page

_QUESTION_ENDS: Final = ("?", "？")
_LEAST_CHARS: Final = 20
_WIDE: Final = 3
"""The Latin letters that say as much as one Chinese character."""
_MOST_CHARS: Final = 1_200
_BEGINNING_CHARS: Final = 60
_QUESTION_CHARS: Final = 200
_FEWEST_PAGES: Final = 4
"""From this number of pages on, a paragraph of more than half of them belongs to none."""
_SENTENCES: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_BETWEEN_NAMES: Final = re.compile(r" [|·•–—:-]{1,2} ")


@dataclass(frozen=True, slots=True)
class Section:
    """A question with its answer, from the page `page`. `topic` is the page's title, `path` the question with the
    headings above it, `row` its other cells in a table."""

    page: str
    language: str
    topic: str
    question: str
    answer: str
    path: str
    row: Row | None = None


def read_once(pages: Sequence[Page]) -> tuple[list[Page], list[str]]:
    """Remove repeated paragraphs: one that is on more than half of the pages is kept on the first page only.

    Returns:
        The pages, and the paragraphs that were repeated.
    """
    if len(pages) < _FEWEST_PAGES:
        return list(pages), []
    seen = Counter(text for page in pages for text in {each.text for each in page.blocks if isinstance(each, Text)})
    repeated = {text for text, pages_with_it in seen.items() if pages_with_it * 2 > len(pages)}
    left, kept = set(repeated), []
    for page in pages:
        own: list[Block] = []
        for block in page.blocks:
            if not isinstance(block, Text) or block.text not in repeated:
                own.append(block)
            elif block.text in left:
                left.discard(block.text)
                own.append(block)
        kept.append(replace(page, blocks=tuple(own)))
    return kept, sorted(repeated)


def with_own_titles(pages: Sequence[Page]) -> list[Page]:
    """Return the pages without the site's name in their titles: the part that two thirds of the titles share, or the
    last part if there is one page."""
    sites = [page for page in pages if page.is_site]
    shared = Counter(part for page in sites for part in set(_BETWEEN_NAMES.split(page.title)))
    named = []
    for page in pages:
        parts = _BETWEEN_NAMES.split(page.title) if page.is_site else [page.title]
        own = [part for part in parts if len(sites) == 1 or shared[part] * 3 <= len(sites) * 2]
        own = own[:-1] if len(sites) == 1 and len(own) > 1 else own
        named.append(replace(page, title=" – ".join(own) or page.title))
    return named


def sections_of(page: Page) -> list[Section]:
    """Return the page's sections in order. Questions that are equal get the headings above them, so that all differ."""
    sections = list(_sections_of(page))
    times = Counter(section.question for section in sections)
    return [replace(each, question=each.path) if times[each.question] > 1 else each for each in sections]


def _sections_of(page: Page) -> Iterator[Section]:
    title = page.title or PurePosixPath(page.name).stem.replace("-", " ").replace("_", " ")
    topic = next((each.text for each in page.blocks if isinstance(each, Heading) and each.level == 1), title)
    path: list[Heading] = []
    body: list[str] = []

    def section() -> Iterator[Section]:
        whole = _path(topic, path)
        alone = path[-1].text if path and _is_question(path[-1].text) else whole
        for question, answer in _cut(alone, body, _MOST_CHARS):
            yield Section(page.name, page.language, topic, question, answer, question.replace(alone, whole, 1))
        body.clear()

    for block in page.blocks:
        if isinstance(block, Text):
            body.append(block.text)
        elif isinstance(block, Asked):
            row, language = block.row, block.row.language if block.row is not None else ""
            whole = _path(topic, [*path, Heading(6, block.question)])
            alone = block.question if block.whole or _is_question(block.question) else whole
            for question, answer in _cut(alone, [block.answer], _MOST_CHARS * 3):
                named = question.replace(alone, whole, 1)
                yield Section(page.name, language or page.language, topic, question, answer, named, row)
                row = None  # of the first part only
        else:
            yield from section()
            path = [*(above for above in path if above.level < block.level), block]
    yield from section()


def is_short(section: Section) -> bool:
    """Return whether a section is too short to be an answer, and its heading is not a question."""
    said = sum(1 if char.isascii() else _WIDE for char in section.answer)
    return not _is_question(section.question) and said < _LEAST_CHARS


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(_QUESTION_ENDS)


def _path(topic: str, path: Sequence[Heading]) -> str:
    names = [heading.text for heading in path]
    if not path or path[0].level > 1:
        names.insert(0, topic)
    question = " – ".join(name.rstrip(":：") for name in dict.fromkeys(names))
    return question if len(question) <= _QUESTION_CHARS else f"{names[0][:80]} – {names[-1][:110]}"


def _cut(question: str, paragraphs: Iterable[str], most: int) -> Iterator[tuple[str, str]]:
    """Yield a section's parts, of at most `most` characters each unless a line is longer. The question of a later part
    includes the beginning of its text."""
    parts: list[list[str]] = [[]]
    length = 0
    for paragraph in (piece for each in paragraphs for piece in _pieces(each, most)):
        if parts[-1] and length + len(paragraph) > most:
            parts.append([])
            length = 0
        parts[-1].append(paragraph)
        length += len(paragraph)
    for number, part in enumerate(parts):
        if part:
            name = question if number == 0 else f"{question.rstrip('?？')} – {_beginning(part[0])}"
            yield name, "\n".join(part)


def _pieces(paragraph: str, most: int) -> list[str]:
    """Return the pieces of a paragraph: the paragraph if it is short, else its lines (a list's items, a table's rows),
    and the sentences of a long line."""
    if len(paragraph) <= most:
        return [paragraph]
    return [
        piece for line in paragraph.split("\n") for piece in (_SENTENCES.split(line) if len(line) > most else [line])
    ]


def _beginning(text: str) -> str:
    line = re.sub(r"^(?:-|\d+\.)\s+", "", text.split("\n", maxsplit=1)[0].strip())
    if len(line) <= _BEGINNING_CHARS:
        return line
    cut = line[:_BEGINNING_CHARS]
    return f"{cut.rpartition(' ')[0] or cut}…"
