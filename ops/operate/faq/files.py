"""Read a shop's files as pages: Markdown, HTML, PDF, Word, spreadsheets, CSV, and the JSON of help centres."""

import codecs
import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

from ops.operate.faq.articles import articles_in
from ops.operate.faq.blocks import Asked, Block, Heading
from ops.operate.faq.documents import KINDS, MOST_MIB, MOST_TEXT_MIB, Document, open_document
from ops.operate.faq.html import Html, read_html, text_of
from ops.operate.faq.rows import read_rows
from shared.errors import SettingsError
from shared.faq.texts import shown

_MARKDOWN: Final = (".md", ".markdown", ".mdx", ".txt")
_HTML: Final = (".html", ".htm", ".xhtml", ".shtml", ".php", ".asp", ".aspx", ".jsp", "")
_TABLES: Final = (".csv", ".tsv")
_JSON: Final = ".json"
_OTHERS: Final = (".doc", ".odt", ".rtf")
_SNIFFED_CHARS: Final = 2_048
_LOOKS_LIKE_HTML: Final = re.compile(r"<!doctype html|<html|<body", re.IGNORECASE)
_HAS_MARKUP: Final = re.compile(r"</?[a-zA-Z][^<>]*>|&(?:#\d+|#x[0-9a-fA-F]+|[a-zA-Z]+\d*);")
_FRONT_MATTER: Final = re.compile(r"\A(---|\+\+\+)\r?\n(\w[^\n]*\n(?:[^\n]*\n)*?)\1[ \t]*(?:\r?\n|\Z)")
_TEMPLATE_LINE: Final = re.compile(r"^[ \t]*\{%[^\n]*%\}[ \t]*$", re.MULTILINE)
_SHORT_PAGE_CHARS: Final = 400
_MISSING: Final = re.compile(r"\s*(?:404\b|(?:page|site) not found|not found\s*(?:$|[|–-]))", re.IGNORECASE)


class UnreadableError(Exception):
    """A file that gives no entries; the text is the reason and the remedy."""


def is_address(named: str) -> bool:
    """Return whether a command's argument is a site's address, not a path."""
    return named.lower().startswith(("http://", "https://"))


def printable(text: str) -> str:
    """Return a page's or a site's text as one line that moves no cursor."""
    return "".join([char if char.isprintable() else "?" for char in text])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A section, or a whole page if `question` is empty, that gives no entry."""

    page: str
    question: str
    why: str

    def __str__(self) -> str:
        question = f"{shown(self.question)} " if self.question else ""
        return printable(f"{self.page}: {question}{self.why}")


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        name: the file's path below the folder that was given
        title: its title
        language: the language that it names; empty if it names none
        blocks: its text
        is_site: the title is that of a browser's tab, which may include the site's name
    """

    name: str
    title: str
    language: str
    blocks: tuple[Block, ...]
    is_site: bool = False


@dataclass(slots=True)
class Pages:
    """The result of reading files: the pages, the sections that were left out, and how many files of other kinds there
    were, by their ending."""

    pages: list[Page] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)

    def read(self, paths: Iterable[Path], but: Path | None = None) -> None:
        """Read files and folders, but not the file `but`. Raises SettingsError for a path that is missing."""
        for name, path in _files_of(paths):
            if but is not None and path.resolve() == but.resolve():
                continue
            kind = path.suffix.partition("?")[0].lower()
            if not self.add(name, kind, partial(_content_of, path, kind)):
                self.ignored[path.suffix.lower() or "no suffix"] += 1

    def add(self, name: str, kind: str, content: Callable[[], str | Document]) -> bool:
        """Read the content of a file with the suffix `kind`; return whether that kind has pages."""
        try:
            return self._add(name, kind, content)
        except UnreadableError as error:
            self.left_out.append(LeftOut(name, "", str(error)))
        except RecursionError:
            self.left_out.append(LeftOut(name, "", "is nested too deeply"))
        return True

    def _add(self, name: str, kind: str, content: Callable[[], str | Document]) -> bool:
        if kind in _OTHERS:
            raise UnreadableError(f"{kind} is not read; save it as .docx, .pdf or HTML")
        if kind not in (*_MARKDOWN, *_HTML, *_TABLES, *KINDS, _JSON):
            return False
        text = content()
        if isinstance(text, Document):
            self._read_document(name, text)
        elif kind == _JSON:
            self._read_articles(name, text)
        elif kind in _TABLES:
            self._read_table(name, text)
        elif kind in _MARKDOWN:
            self.pages.append(_of_markdown(name, text))
        elif kind in _HTML[:3] or _LOOKS_LIKE_HTML.search(text[:_SNIFFED_CHARS]):
            self.pages.append(_page(name, read_html(text), is_site=True))
        else:
            return False
        return True

    def _read_document(self, name: str, document: Document) -> None:
        if document.fault:
            raise UnreadableError(document.fault)
        if document.note:
            self.left_out.append(LeftOut(name, "", document.note))
        for part in document.parts:
            if part.sheet:
                self.add(f"{name} {part.sheet}", part.kind, partial(str, part.text))
            else:
                self.pages.append(_page(name, read_html(part.text)))

    def _read_table(self, name: str, text: str) -> None:
        csv.field_size_limit(MOST_TEXT_MIB << 20)
        try:
            asked, notes = read_rows(text, _plain)
        except ValueError as error:
            raise UnreadableError(str(error)) from error
        self.left_out += [LeftOut(name, question, why) for question, why in notes]
        self.pages.append(Page(name, "", "", tuple(asked)))

    def _read_articles(self, name: str, text: str) -> None:
        """Read the articles of a help centre's export. Those that are not public are left out."""
        try:
            articles = articles_in(text)
        except ValueError as error:
            raise UnreadableError(str(error)) from error
        for article in articles:
            if article.hidden:
                self.left_out.append(LeftOut(name, article.title, f"is not public: {article.hidden}"))
                continue
            html = read_html(article.body if _HAS_MARKUP.search(article.body) else _rendered(article.body))
            title = " ".join(_plain(article.title).split())
            blocks = (Heading(1, title), *html.blocks)
            self.pages.append(Page(f"{name} {article.id}", title, article.language or html.language, blocks))


def _files_of(paths: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files, each with the name to show; no hidden ones."""
    for path in paths:
        try:
            if path.is_dir():
                for each in sorted(each for each in path.rglob("*") if each.is_file()):
                    below = each.relative_to(path)
                    if not any(part.startswith(".") or part == "node_modules" for part in below.parts):
                        yield _name(below.as_posix()), each
            elif path.is_file():
                yield _name(path.name), path
            else:
                raise SettingsError(f"{path}: is no regular file; name a file or folder")
        except OSError as error:
            raise SettingsError(
                f"{path}: {error.strerror or error}; change its permissions, or name another"
            ) from error


def _name(path: str) -> str:
    """Return a path, which may have any bytes, as one line of text."""
    return printable(path.encode("utf-8", "replace").decode())


def _content_of(path: Path, kind: str) -> str | Document:
    most = MOST_MIB if kind in KINDS else MOST_TEXT_MIB
    try:
        if (size := path.stat().st_size) > most << 20:
            raise UnreadableError(f"has {size / (1 << 20):.0f} MiB, the most is {most}; split it")
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{error.strerror or error}; change its permissions") from error
    if kind in KINDS:
        return open_document(kind, data)
    form = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(form)
    except UnicodeDecodeError as error:
        wrong = form.removesuffix("-sig").upper()
        raise UnreadableError(f"is not {wrong} at byte {error.start}; save it as UTF-8") from error


def _page(name: str, html: Html, title: str = "", *, is_site: bool = False) -> Page:
    said = sum(len(each.answer) if isinstance(each, Asked) else len(each.text) for each in html.blocks)
    if html.wants_password and said < _SHORT_PAGE_CHARS and not any(isinstance(each, Asked) for each in html.blocks):
        raise UnreadableError("asks for a password; save the page that is behind it")
    if _MISSING.match(html.title) and said < _SHORT_PAGE_CHARS:
        raise UnreadableError(f"says {shown(html.title)}")
    return Page(name, title or html.title, html.language, html.blocks, is_site)


def _rendered(markdown: str) -> str:
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def _of_markdown(name: str, text: str) -> Page:
    title, front = "", _FRONT_MATTER.match(text)
    if front is not None:
        text = text[front.end() :]
        named = (
            re.split("[:=]", line, maxsplit=1) for line in front[2].splitlines() if re.match(r"title\s*[:=]", line)
        )
        title = next((value.strip().strip("\"'") for _, value in named), "")
    return _page(name, read_html(_rendered(_TEMPLATE_LINE.sub("", text))), " ".join(title.split()))


def _plain(text: str) -> str:
    return text_of(text) if _HAS_MARKUP.search(text) else text.strip()
