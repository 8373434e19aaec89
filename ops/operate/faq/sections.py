"""Cut pages into sections, each a question with its answer. Pure.

The path of headings is a section's question ("Returns – Fees"); a heading that is a question is one by itself. A long
section is cut at its paragraphs. What most pages repeat is left out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from ops.operate.faq.blocks import Asked, Block, Heading, Text
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
_SITE_NAME: Final = re.compile(r"\s+[|·•–—-]\s+[^|·•–—-]+$")


@dataclass(frozen=True, slots=True)
class Section:
    """A question with its answer, of the page `page`; `topic` is the page's title."""

    page: str
    language: str
    topic: str
    question: str
    answer: str


def without_repeated(pages: Sequence[Page]) -> tuple[list[Page], list[str]]:
    """Return the pages without the paragraphs of more than half of them, and those paragraphs."""
    if len(pages) < _FEWEST_PAGES:
        return list(pages), []
    seen = Counter(text for page in pages for text in {each.text for each in page.blocks if isinstance(each, Text)})
    repeated = {text for text, pages_with_it in seen.items() if pages_with_it * 2 > len(pages)}

    def own(block: Block) -> bool:
        return not (isinstance(block, Text) and block.text in repeated)

    kept = [Page(page.name, page.title, page.language, tuple(filter(own, page.blocks))) for page in pages]
    return kept, sorted(repeated)


def sections_of(page: Page) -> Iterator[Section]:
    """Yield the page's sections in order."""
    title = _SITE_NAME.sub("", page.title) or PurePosixPath(page.name).stem.replace("-", " ").replace("_", " ")
    topic = next((each.text for each in page.blocks if isinstance(each, Heading) and each.level == 1), title)
    path: list[Heading] = []
    body: list[str] = []

    def section() -> Iterator[Section]:
        asked = _question(topic, path)
        for question, answer in _cut(asked, body):
            yield Section(page.name, page.language, topic, question, answer)
        body.clear()

    for block in page.blocks:
        if isinstance(block, Text):
            body.append(block.text)
        elif isinstance(block, Asked):
            alone = block.whole or _is_question(block.question)
            question = block.question if alone else _question(topic, [*path, Heading(6, block.question)])
            yield Section(page.name, page.language, topic, question, block.answer)
        else:
            yield from section()
            path = [*(above for above in path if above.level < block.level), block]
    yield from section()


def is_short(section: Section) -> bool:
    """Return whether a section says too little to answer anything: its heading is no question."""
    said = sum(1 if char.isascii() else _WIDE for char in section.answer)
    return not _is_question(section.question) and said < _LEAST_CHARS


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(_QUESTION_ENDS)


def _question(topic: str, path: Sequence[Heading]) -> str:
    names = [heading.text for heading in path]
    if names and _is_question(names[-1]):
        return names[-1]
    if not path or path[0].level > 1:
        names.insert(0, topic)
    question = " – ".join(name.rstrip(":：") for name in dict.fromkeys(names))
    return question if len(question) <= _QUESTION_CHARS else f"{names[0][:80]} – {names[-1][:110]}"


def _cut(question: str, paragraphs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield a section's parts, of at most `_MOST_CHARS` characters where its paragraphs are not longer. A later part
    has the beginning of its text in its question."""
    parts: list[list[str]] = [[]]
    for paragraph in (piece for each in paragraphs for piece in _pieces(each)):
        if parts[-1] and sum(map(len, parts[-1])) + len(paragraph) > _MOST_CHARS:
            parts.append([])
        parts[-1].append(paragraph)
    for number, part in enumerate(parts):
        if part:
            name = question if number == 0 else f"{question.rstrip('?？')} – {_beginning(part[0])}"
            yield name, "\n".join(part)


def _pieces(paragraph: str) -> list[str]:
    """Return a paragraph, or the lines of one that is too long: a list's items, a table's rows."""
    return [paragraph] if len(paragraph) <= _MOST_CHARS else paragraph.split("\n")


def _beginning(text: str) -> str:
    line = re.sub(r"^(?:-|\d+\.)\s+", "", text.split("\n", maxsplit=1)[0].strip())
    if len(line) <= _BEGINNING_CHARS:
        return line
    cut = line[:_BEGINNING_CHARS]
    return f"{cut.rpartition(' ')[0] or cut}…"
