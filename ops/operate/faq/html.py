"""Read an HTML page as blocks of plain text: headings, paragraphs, and questions with their answers. Pure.

Read are headings, paragraphs, lists, tables (each row with its columns' names), `<details>`, `<dl>`, accordions, open
or hidden, and questions by schema.org (JSON-LD or microdata). Navigation, footers, forms and scripts are not. A line
in bold alone is a heading, and "Q: … A: …" a question with its answer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ops.operate.faq.blocks import Asked, Block, Heading, Text
from ops.operate.faq.json_ld import questions_in
from ops.operate.faq.questions import HEADING_CHARS, QUESTION_MARKS, with_asked
from ops.operate.faq.tables import rows_of

_NO_CONTENT: Final = (
    "script, style, template, nav, footer, body > aside, dialog, iframe, svg, canvas, video, audio, object, input, "
    "select, textarea, form, header, [role=navigation], [role=banner], [role=contentinfo], [role=search], "
    "[role=dialog], [class*=cookie], [id*=cookie], [class*=consent], [id*=consent], [class*=breadcrumb], "
    "[class*=skip-link]"
)
_CONTENT: Final = ("html", "body", "main", "article", "section")
_BANNER: Final = re.compile(
    r"(?:cookie|consent)\w*[-_]*(?:banner|bar|notice|popup|modal|overlay|dialog|text)", re.IGNORECASE
)
_INLINE_TAGS: Final = (
    "a abbr b bdi bdo big br button cite code data del dfn em font i img ins kbd label mark q rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr -text"
)
_INLINE: Final = frozenset(_INLINE_TAGS.split())
_REPLACED: Final = ("del", "s", "strike")  # an earlier price
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_BOLD: Final = ("b", "strong")
_LEAST_LEVEL: Final = 6
_MAIN_SHARE: Final = 4
"""A `<main>` with less than this part of the page's text is not where the page has its content."""
_MARKUP: Final = re.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d+);|</?[a-z]+>")
_MOST_ESCAPED: Final = 2
"""A text in data may be escaped this many times too often."""
_FAR: Final = ("http://", "https://", "mailto:", "tel:")
_ASKED_ANSWER_CHARS: Final = 40
"""A `<dl>`'s description from this length on, or of a term with a question mark, is an answer; a shorter one is a
property ("Weight: 3 kg")."""
_NO_QUESTION: Final = re.compile(
    r"(?:read|show|see|view|load|learn)? ?(?:more|less|all|answers?|details)|(?:expand|collapse|open|close)(?: all)?|"
    r"toggle(?: \w+)?|menu|更多|展开|展開|收起|查看(?:更多|答案)?|\W*",
    re.IGNORECASE,
)
"""What a button says that opens something without naming it."""
_ORNAMENT: Final = " +▼▾▸►›»¶✕×＋−–"
"""What opens and closes an accordion, and marks a heading's own address."""


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
    scripts = [script.text() or "" for script in tree.css('script[type^="application/ld+json"]')]
    asked = tuple(Asked(_line(question), told, whole=True) for question, told in _in_json_ld(scripts))
    title, language = tree.css_first("title"), tree.css_first("html")
    wants_password = tree.css_first("input[type=password]") is not None
    for node in _outermost([node for node in tree.css(_NO_CONTENT) if _is_around(node)]):
        node.decompose()
    mains = tree.css("main, [role=main]")
    root = body = tree.css_first("body")
    if mains:
        longest = max(mains, key=lambda main: len(main.text()))
        root = longest if body is None or len(longest.text()) * _MAIN_SHARE >= len(body.text()) else body
    blocks: list[Block] = []
    if root is not None:
        reader = _Reader(root)
        reader.read(root)
        reader.end_paragraph()
        blocks = list(with_asked(reader.blocks))
    return Html(
        title=_line(_inline(title)) if title is not None else "",
        language=(language.attributes.get("lang") or "") if language is not None else "",
        blocks=(*(each for each in asked if _bare(each.question) not in _questions(blocks)), *blocks),
        wants_password=wants_password,
    )


def _questions(blocks: list[Block]) -> set[str]:
    """Return the questions and headings that a page shows. They take precedence over its schema.org data."""
    return {_bare(each.question if isinstance(each, Asked) else each.text) for each in blocks}


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def text_of(html: str) -> str:
    """Return a fragment of HTML as plain text."""
    return _joined(read_html(html).blocks)


def _is_around(node: LexborNode) -> bool:
    """Return whether a node that matches `_NO_CONTENT` really has none, and can be removed.

    A form around the page has content, and so has a header with the page's title. A node whose class or id names
    cookies has content unless these, or its role, say that it is a banner.
    """
    tag = str(node.tag)
    if tag == "header":
        return node.css_first("h1") is None or (node.parent is not None and node.parent.tag == "body")
    if tag == "form":
        return node.css_first("h1, h2, h3, details, article") is None
    names = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}"
    if re.search("cookie|consent", names) and tag not in ("nav", "footer", "dialog", "script", "style"):
        return tag not in _CONTENT and _BANNER.search(names) is not None
    return tag not in _CONTENT or "role" in node.attributes


def _outermost(nodes: list[LexborNode]) -> list[LexborNode]:
    """Return the nodes that are not inside another of the nodes, since removing a node removes the nodes inside it."""
    ids = {node.mem_id for node in nodes}
    return [node for node in nodes if not any(above.mem_id in ids for above in _above(node))]


def _above(node: LexborNode) -> Iterator[LexborNode]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _holds(container: LexborNode, node: LexborNode) -> bool:
    return any(each.mem_id == container.mem_id for each in (node, *_above(node)))


def _joined(blocks: tuple[Block, ...] | list[Block]) -> str:
    lines = [f"{each.question}\n{each.answer}" if isinstance(each, Asked) else each.text for each in blocks]
    return "\n".join(lines)


@dataclass(slots=True)
class _Reader:
    """Walks the tree; `_inline` collects the text that is directly in a container."""

    root: LexborNode
    blocks: list[Block] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _opened: set[int] = field(default_factory=set)  # what an accordion's button has led to

    def read(self, node: LexborNode) -> None:
        for child in node.iter(include_text=True):
            if child.mem_id in self._opened:
                continue
            button = _button_in(child)
            if button is not None and _NO_QUESTION.fullmatch(_line(_inline(button))):
                continue
            panel = self._panel_of(button) if button is not None else None
            if panel is not None and button is not None:
                self._opened.add(panel.mem_id)
                self._add(_inline(button), _block_text(panel))
            elif child.tag in _INLINE and not _holds_blocks(child):
                self._pieces.append(_raw(child, self._pieces))
            else:
                self.end_paragraph()
                self._read_block(child)
                self.end_paragraph()

    def end_paragraph(self) -> None:
        """End the paragraph of the text that was read last."""
        text = _tidy("".join(self._pieces))
        self._pieces.clear()
        if text:
            self.blocks.append(Text(text))

    def _read_block(self, node: LexborNode) -> None:
        tag = str(node.tag)
        if (level := _level_of(node)) is not None:
            if text := _named(_inline(node)):
                self.blocks.append(Heading(level, text))
        elif "schema.org/Question" in (node.attributes.get("itemtype") or ""):
            self._read_microdata(node)
        elif tag == "details":
            self._read_details(node)
        elif tag == "dl":
            self._read_terms(node)
        elif tag in ("ul", "ol") and not _is_structured(node):
            self._add_text("\n".join(_items(node)))
        elif tag == "pre":
            self._add_text(node.text().strip("\n"))
        elif tag == "table" and node.css_first("table table, details, h1, h2, h3") is None:
            self._add_text("\n".join(rows_of(node, _cell)))
        elif not tag.startswith(("!", "-")):
            self.read(node)

    def _read_details(self, node: LexborNode) -> None:
        summary = next((child for child in node.iter() if child.tag == "summary"), None)
        question = _line(_inline(summary)) if summary is not None else ""
        if summary is not None:
            summary.decompose()
        if question and not _is_structured(node) and not _NO_QUESTION.fullmatch(question):
            self._add(question, _block_text(node))
        else:
            self.read(node)

    def _read_microdata(self, node: LexborNode) -> None:
        name, text = node.css_first("[itemprop=name]"), node.css_first("[itemprop=text]")
        if name is None or text is None:
            self.read(node)
        elif question := _line(_inline(name)):
            self.blocks.append(Asked(question, _block_text(text), whole=True))

    def _read_terms(self, node: LexborNode) -> None:
        rows: list[tuple[list[str], list[str]]] = []
        for child in node.iter():
            for each in child.iter() if child.tag == "div" else (child,):
                if each.tag == "dt" and (not rows or rows[-1][1]):
                    rows.append(([], []))
                if each.tag in ("dt", "dd") and rows:
                    rows[-1][each.tag == "dd"].append(_block_text(each))
        for terms, descriptions in rows:
            description = "\n".join(filter(None, descriptions))
            for term in map(_line, terms):
                if term.endswith(QUESTION_MARKS) or len(description) >= _ASKED_ANSWER_CHARS:
                    self._add(term, description)
                else:
                    self._add_text(f"{term}: {description}")

    def _panel_of(self, button: LexborNode) -> LexborNode | None:
        """Return the panel that an accordion's button opens, if the panel is one answer."""
        named = (
            button.attributes.get(name) or "" for name in ("aria-controls", "data-bs-target", "data-target", "href")
        )
        for name in (each.removeprefix("#") for each in named):
            if re.fullmatch(r"[\w:.-]+", name):
                panel = self.root.css_first(f'[id="{name}"]')
                if panel is None or panel.mem_id in self._opened or _holds(panel, button) or _is_structured(panel):
                    return None
                return panel
        return None

    def _add(self, question: str, answer: str) -> None:
        if question and answer:
            self.blocks.append(Asked(_named(question), answer))

    def _add_text(self, text: str) -> None:
        if text.strip():
            self.blocks.append(Text(text))


def _level_of(node: LexborNode) -> int | None:
    """Return a heading's level; None for any other node. A paragraph in bold alone is one of the lowest level."""
    tag = str(node.tag)
    if tag in _HEADINGS:
        return _HEADINGS[tag]
    if node.attributes.get("role") == "heading":
        return min(_LEAST_LEVEL, int(level)) if (level := node.attributes.get("aria-level") or "2").isdecimal() else 2
    if tag != "p":
        return None
    children = [
        each for each in node.iter(include_text=True) if each.tag != "-text" or (each.text_content or "").strip()
    ]
    is_bold = len(children) == 1 and children[0].tag in _BOLD and len(node.text()) <= HEADING_CHARS
    return _LEAST_LEVEL if is_bold else None


def _button_in(node: LexborNode) -> LexborNode | None:
    """Return an accordion's button: the node, or the one in a heading; None for any other node."""
    if node.tag in _HEADINGS:
        return node.css_first("[aria-controls], [data-bs-toggle=collapse], [data-toggle=collapse]")
    if node.tag not in ("button", "a", "div", "li"):
        return None
    given = node.attributes
    opens = "collapse" in (given.get("data-bs-toggle"), given.get("data-toggle"))
    return node if "aria-controls" in given or opens or (node.tag == "button" and "aria-expanded" in given) else None


def _is_structured(node: LexborNode) -> bool:
    """Return whether a node contains headings, questions or other panels, so that its text is more than one answer."""
    found = node.css("h1, h2, h3, h4, h5, h6, details, dl, [aria-controls], [aria-expanded]")
    return any(each.mem_id != node.mem_id for each in found)


def _holds_blocks(node: LexborNode) -> bool:
    return node.tag != "-text" and any(child.tag not in _INLINE or _holds_blocks(child) for child in node.iter())


def _block_text(node: LexborNode) -> str:
    """Return the text of a container, each of its blocks on separate lines."""
    reader = _Reader(node)
    reader.read(node)
    reader.end_paragraph()
    return _joined(reader.blocks)


def _cell(node: LexborNode) -> str:
    return _block_text(node).replace("\n", ", ")


def _inline(node: LexborNode) -> str:
    pieces: list[str] = []
    for child in node.iter(include_text=True):
        pieces.append(_raw(child, pieces))
    return _tidy("".join(pieces))


def _line(text: str) -> str:
    return " ".join(text.split())


def _named(text: str) -> str:
    """Return a heading or question without the ornament at its end."""
    return _line(text).rstrip(_ORNAMENT) or _line(text)


def _raw(node: LexborNode, before: list[str]) -> str:
    """Return a node's text; a line end in place of `<br>`, and after the text of a link to another page its address."""
    if node.tag == "-text":
        return re.sub(r"\s+", " ", node.text_content or "")
    if node.tag == "br":
        return "\n"
    if node.tag in _REPLACED:
        return ""
    text = _inline(node) if node.tag != "sup" else _raised(_inline(node), "".join(before[-1:]))
    address = node.attributes.get("href") or ""
    if node.tag == "a" and address.lower().startswith(_FAR):
        address = re.sub("^(?:mailto|tel):", "", address, flags=re.IGNORECASE)
        if address not in text.replace(" ", ""):
            text = f"{text} ({address})" if text else ""
    return _spaced(node, text)


def _spaced(node: LexborNode, text: str) -> str:
    """Return a node's text with the spaces at its ends, which `_inline` removes."""
    if node.tag not in _INLINE:
        return f" {text} "
    whole = node.text()
    begin, end = (" " if whole[:1].isspace() else ""), (" " if whole[-1:].isspace() else "")
    return f"{begin}{text}{end}"


def _raised(text: str, before: str) -> str:
    """Return raised digits as text: the cents after a price; otherwise they mark a footnote and are left out."""
    if not text.isdecimal() or not before[-1:].isdecimal():
        return "" if text.isdecimal() else text
    is_cents = len(text) == len("99") and re.search(r"(?:^|[^\d.,])\d+$", before) is not None
    return f".{text}" if is_cents else ""


def _tidy(text: str) -> str:
    text = text.replace("\u00a0", " ").replace("\u202f", " ")
    return "\n".join(filter(None, (re.sub(r"[ \t]+", " ", line).strip() for line in text.split("\n"))))


def _items(node: LexborNode, indent: str = "") -> Iterator[str]:
    """Yield a list's items as lines."""
    start = node.attributes.get("start") or "1"
    number = int(start) - 1 if start.isdecimal() else 0
    for item in node.iter(include_text=True):
        if item.tag in ("ul", "ol"):
            yield from _items(item, f"{indent}  ")
        elif item.tag != "li":
            if text := _tidy(_raw(item, []) if item.tag in _INLINE else _block_text(item)):
                yield f"{indent}{text}"
        else:
            number += 1
            nested = [child for child in item.iter() if child.tag in ("ul", "ol")]
            lines = [line for each in nested for line in _items(each, f"{indent}  ")]
            for each in nested:
                each.decompose()
            mark = f"{number}." if node.tag == "ol" else "-"
            if text := _block_text(item).replace("\n", f"\n{indent}  "):
                yield f"{indent}{mark} {text}"
            yield from lines


def _in_json_ld(scripts: list[str]) -> Iterator[tuple[str, str]]:
    for script in scripts:
        for name, answer in questions_in(script):
            question, told = (text_of(text) for text in (name, answer))
            for _ in range(_MOST_ESCAPED):
                if _MARKUP.search(question + told):
                    question, told = text_of(question), text_of(told)
            if question and told:
                yield question, told
