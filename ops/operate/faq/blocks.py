"""Read an HTML page as blocks of plain text: headings, paragraphs, and questions with their answers. Pure.

Read are headings, paragraphs, lists, tables (each row with its header's names), `<details>`, `<dl>`, accordions
(`aria-controls`, open or hidden) and the questions of a schema.org `FAQPage` (JSON-LD). Navigation, headers and footers
of the page, forms and scripts are not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

_NO_CONTENT: Final = (
    "script, style, template, noscript, nav, footer, aside, form, dialog, iframe, svg, canvas, video, audio, object, "
    "body > header, body > div > header, "
    "[role=navigation], [role=banner], [role=contentinfo], [role=search], [role=dialog], [role=alert], "
    "[class*=cookie], [id*=cookie], [class*=breadcrumb], [class*=skip-link]"
)
_MAIN: Final = ("main", "[role=main]", "#main", "#content", "article", "body")
_INLINE_TAGS: Final = (
    "a abbr b bdi bdo big br button cite code data del dfn em font i img input ins kbd label mark q rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr -text"
)
_INLINE: Final = frozenset(_INLINE_TAGS.split())
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_FAR: Final = ("http://", "https://", "mailto:", "tel:")
_ASKED_ANSWER_CHARS: Final = 40
"""A `<dl>`'s description from this length on, or of a term with a question mark, is an answer; a shorter one is a
property ("Weight: 3 kg")."""
_QUESTION_MARKS: Final = ("?", "？", "؟")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `level` is 1..6."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, a list or a table, each item and row a separate line."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer, as the page marks them. `whole`: it needs no heading above to be understood."""

    question: str
    answer: str
    whole: bool = field(default=False, compare=False)


Block = Heading | Text | Asked


@dataclass(frozen=True, slots=True)
class Html:
    """A page: its `<title>`, the language that it names ("" if none) and its blocks in order."""

    title: str
    language: str
    blocks: tuple[Block, ...]
    wants_password: bool = False


def read_html(html: str) -> Html:
    """Return an HTML page, or a part of one, as blocks."""
    tree = LexborHTMLParser(html)
    asked = tuple(_of_json_ld(tree))
    title, language = tree.css_first("title"), tree.css_first("html")
    wants_password = tree.css_first("input[type=password]") is not None
    for node in _outermost(tree.css(_NO_CONTENT)):
        node.decompose()
    root = next(found for selector in _MAIN if (found := tree.css_first(selector)) is not None)
    reader = _Reader(root)
    reader.read(root)
    reader.end_paragraph()
    return Html(
        title=_inline(title) if title is not None else "",
        language=(language.attributes.get("lang") or "") if language is not None else "",
        blocks=(*asked, *(block for block in reader.blocks if block not in asked)),
        wants_password=wants_password,
    )


def _outermost(nodes: list[LexborNode]) -> list[LexborNode]:
    """Return the nodes that none of the others holds: what is removed takes its own with it."""
    ids = {node.mem_id for node in nodes}
    return [node for node in nodes if not any(above.mem_id in ids for above in _above(node))]


def _above(node: LexborNode) -> Iterator[LexborNode]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _holds(container: LexborNode, node: LexborNode) -> bool:
    return any(each.mem_id == container.mem_id for each in (node, *_above(node)))


def text_of(html: str) -> str:
    """Return a fragment of HTML as plain text."""
    return _joined(read_html(html).blocks)


def _joined(blocks: tuple[Block, ...] | list[Block]) -> str:
    lines = [f"{each.question}\n{each.answer}" if isinstance(each, Asked) else each.text for each in blocks]
    return "\n".join(lines)


@dataclass(slots=True)
class _Reader:
    """Walks the tree; `_line` collects the text that stands directly in a container."""

    root: LexborNode
    blocks: list[Block] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)
    _read: set[int] = field(default_factory=set)  # what an accordion's button has led to

    def read(self, node: LexborNode) -> None:
        for child in node.iter(include_text=True):
            if child.mem_id in self._read:
                continue
            if (panel := self._panel_of(child)) is not None:
                self._add_asked(_inline(child), panel)
                self._read.add(panel.mem_id)
            elif child.tag in _INLINE and not _holds_blocks(child):
                self._line.append(_raw(child))
            else:
                self.end_paragraph()
                self._read_block(child)
                self.end_paragraph()

    def end_paragraph(self) -> None:
        """End the paragraph of the text that was read last."""
        text = _tidy("".join(self._line))
        self._line.clear()
        if text:
            self.blocks.append(Text(text))

    def _read_block(self, node: LexborNode) -> None:
        tag = str(node.tag)
        if tag in _HEADINGS:
            if text := _inline(node):
                self.blocks.append(Heading(_HEADINGS[tag], text.replace("\n", " ")))
        elif tag == "details":
            self._read_details(node)
        elif tag == "dl":
            self._read_terms(node)
        elif tag in ("ul", "ol") and node.css_first("h1, h2, h3, h4, details, dl, table, [aria-controls]") is None:
            self._add_text("\n".join(_items(node)))
        elif tag == "pre":
            self._add_text(node.text().strip("\n"))
        elif tag == "table" and node.css_first("table table") is None:
            self._add_text("\n".join(_rows(node)))
        elif not tag.startswith("!") and tag != "-comment":
            self.read(node)

    def _read_details(self, node: LexborNode) -> None:
        summary = node.css_first("summary")
        question = _inline(summary) if summary is not None else ""
        if summary is not None:
            summary.decompose()
        if question:
            self._add_asked(question, node)
        else:
            self.read(node)

    def _read_terms(self, node: LexborNode) -> None:
        term = ""
        for each in node.css("dt, dd"):
            if each.tag == "dt":
                term = _inline(each)
                continue
            description = _block_text(each)
            if term.endswith(_QUESTION_MARKS) or len(description) >= _ASKED_ANSWER_CHARS:
                self._add(term, description)
            else:
                self._add_text(f"{term}: {description}")

    def _panel_of(self, node: LexborNode) -> LexborNode | None:
        """Return what an accordion's button, or the heading around it, opens; None for any other node."""
        if node.tag == "-text" or (node.tag not in _HEADINGS and node.tag not in ("button", "a", "div", "summary")):
            return None
        button = node if "aria-controls" in node.attributes else None
        if button is None and node.tag in _HEADINGS:
            button = node.css_first("[aria-controls]")
        name = (button.attributes.get("aria-controls") or "") if button is not None else ""
        if not re.fullmatch(r"[\w:.-]+", name):
            return None
        panel = self.root.css_first(f'[id="{name}"]')
        return None if panel is None or _holds(panel, node) else panel

    def _add_asked(self, question: str, answer: LexborNode) -> None:
        self._add(question, _block_text(answer))

    def _add(self, question: str, answer: str) -> None:
        if question and answer:
            self.blocks.append(Asked(question.replace("\n", " "), answer))

    def _add_text(self, text: str) -> None:
        if text.strip():
            self.blocks.append(Text(text))


def _holds_blocks(node: LexborNode) -> bool:
    return node.tag != "-text" and any(
        child.tag not in _INLINE for child in node.traverse(include_text=False) if child.mem_id != node.mem_id
    )


def _block_text(node: LexborNode) -> str:
    """Return the text of a container, each of its blocks on separate lines."""
    reader = _Reader(node)
    reader.read(node)
    reader.end_paragraph()
    return _joined(reader.blocks)


def _inline(node: LexborNode) -> str:
    return _tidy("".join(_raw(child) for child in node.iter(include_text=True)))


def _raw(node: LexborNode) -> str:
    """Return a node's text; a line end in place of `<br>`, and the address of a link to elsewhere behind its text."""
    if node.tag == "-text":
        return re.sub(r"\s+", " ", node.text_content or "")
    if node.tag == "br":
        return "\n"
    text = "".join(_raw(child) for child in node.iter(include_text=True))
    address = node.attributes.get("href") or ""
    if node.tag == "a" and address.startswith(_FAR):
        address = address.removeprefix("mailto:").removeprefix("tel:")
        if address not in text.replace(" ", ""):
            return f"{text.strip()} ({address})" if text.strip() else ""
    return text if node.tag in _INLINE else f" {text} "


def _tidy(text: str) -> str:
    text = text.replace("\u00a0", " ").replace("\u202f", " ")
    return "\n".join(filter(None, (re.sub(r"[ \t]+", " ", line).strip() for line in text.split("\n"))))


def _items(node: LexborNode, indent: str = "") -> Iterator[str]:
    """Yield a list's items as lines."""
    number = 0
    for item in node.iter():
        if item.tag != "li":
            continue
        number += 1
        nested = [child for child in item.iter() if child.tag in ("ul", "ol")]
        lines = [line for each in nested for line in _items(each, f"{indent}  ")]
        for each in nested:
            each.decompose()
        mark = f"{number}." if node.tag == "ol" else "-"
        if text := _block_text(item).replace("\n", f"\n{indent}  "):
            yield f"{indent}{mark} {text}"
        yield from lines


def _rows(table: LexborNode) -> Iterator[str]:
    """Yield a table's rows as lines that can be read alone: "Poland: Fee 4.90 €, Days 3"."""
    rows = [[cell for cell in row.iter() if cell.tag in ("td", "th")] for row in table.css("tr")]
    rows = [row for row in rows if row]
    if (caption := table.css_first("caption")) is not None and (text := _inline(caption)):
        yield text
    names: list[str] = []
    if len(rows) > 1 and all(cell.tag == "th" for cell in rows[0]):
        names = [_inline(cell) for cell in rows.pop(0)]
    for row in rows:
        first, *rest = [_block_text(cell).replace("\n", ", ") for cell in row]
        named = [
            f"{names[place]} {text}" if place < len(names) and names[place] else text
            for place, text in enumerate(rest, start=1)
            if text
        ]
        yield f"{first}: {', '.join(named)}" if named else first


def _of_json_ld(tree: LexborHTMLParser) -> Iterator[Asked]:
    """Yield the questions of the page's schema.org data."""
    for script in tree.css('script[type="application/ld+json"]'):
        try:
            found = msgspec.json.decode((script.text() or "").encode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue  # other programs' data, of which a page shows nothing
        for asked in _questions_in(found):
            name, answer = asked.get("name"), asked.get("acceptedAnswer") or asked.get("suggestedAnswer")
            answer = answer[0] if isinstance(answer, list) and answer else answer
            text = answer.get("text") if isinstance(answer, dict) else None
            if isinstance(name, str) and isinstance(text, str):
                question, told = text_of(name).replace("\n", " "), text_of(text)
                if question and told:
                    yield Asked(question, told, whole=True)


def _questions_in(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        for each in found:
            yield from _questions_in(each)
    elif isinstance(found, dict):
        if found.get("@type") == "Question":
            yield found
        else:
            yield from _questions_in(list(found.values()))
