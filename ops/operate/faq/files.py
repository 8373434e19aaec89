"""Read a shop's files as pages: Markdown, HTML, CSV, and the JSON of help centres."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from markdown_it import MarkdownIt

from ops.operate.faq.blocks import Asked, Block, Heading, Html, read_html, text_of
from shared.errors import SettingsError
from shared.faq.texts import shown

_MARKDOWN: Final = (".md", ".markdown", ".txt")
_HTML: Final = (".html", ".htm", ".xhtml")
_TABLES: Final = (".csv", ".tsv")
_JSON: Final = ".json"
KINDS: Final = (*_MARKDOWN, *_HTML, *_TABLES, _JSON)
_DOCUMENTS: Final = (".pdf", ".docx", ".doc", ".odt", ".rtf", ".xlsx", ".xls", ".ods")
_MOST_BYTES: Final = 16 * 1024 * 1024
_FRONT_MATTER: Final = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
_FRONT_TITLE: Final = re.compile(r"^title:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
_COLUMNS: Final = {
    "question": ("question", "q", "title", "frage", "问题", "問題", "标题", "標題"),
    "answer": ("answer", "a", "text", "body", "content", "antwort", "答案", "回答", "内容", "內容"),
}
_LISTS: Final = ("articles", "data", "items", "results", "pages", "policies")
_TITLES: Final = ("title", "name", "question")
_BODIES: Final = ("body", "body_html", "content", "html", "answer", "description", "text")
_PUBLISHED: Final = ("published", "active", "live", "public", "1")
_SHORT_PAGE_CHARS: Final = 400


class UnreadableError(Exception):
    """A file that gives no entries; the text is the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A section, or a whole page if `question` is empty, that gives no entry."""

    page: str
    question: str
    why: str

    def __str__(self) -> str:
        return f"{self.page}: {shown(self.question)} {self.why}" if self.question else f"{self.page}: {self.why}"


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the file's name below the folder that was named, its title, its language if it names one, its blocks."""

    name: str
    title: str
    language: str
    blocks: tuple[Block, ...]


def read_pages(paths: Iterable[Path], but: Path | None = None) -> tuple[list[Page], list[LeftOut]]:
    """Return the pages of files and folders, without the file `but`, and which files were left out. Raises
    SettingsError for a path that is missing."""
    pages: list[Page] = []
    left_out: list[LeftOut] = []
    for name, path in _files_of(paths):
        if but is not None and path.resolve() == but.resolve():
            continue
        try:
            pages += _read_file(name, path)
        except UnreadableError as error:
            left_out.append(LeftOut(name, "", str(error)))
    return pages, left_out


def _files_of(paths: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files, each with the name to show; no hidden ones."""
    for path in paths:
        if path.is_dir():
            for each in sorted(each for each in path.rglob("*") if each.is_file()):
                below = each.relative_to(path)
                if not any(part.startswith(".") or part == "node_modules" for part in below.parts):
                    yield below.as_posix(), each
        elif path.is_file():
            yield path.name, path
        elif str(path).startswith(("http:/", "https:/")):
            raise SettingsError(f"{path}: is an address; save the pages (`wget --mirror`), and name their folder")
        else:
            raise SettingsError(f"{path}: does not exist; name an existing file or folder")


def _read_file(name: str, path: Path) -> list[Page]:
    kind = path.suffix.lower()
    if kind in _DOCUMENTS:
        raise UnreadableError(f"{kind} is not read; save it as HTML, Markdown or CSV")
    if kind not in KINDS:
        return []
    if path.stat().st_size > _MOST_BYTES:
        raise UnreadableError(f"has {path.stat().st_size / 1024 / 1024:.0f} MiB, the most is 16; split it")
    text = _text_of(path)
    try:
        return list(_pages_of(name, kind, text))
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None


def _pages_of(name: str, kind: str, text: str) -> Iterator[Page]:
    if kind == _JSON:
        yield from _of_json(name, text)
    elif kind in _TABLES:
        yield _of_table(name, text)
    else:
        yield _page(name, read_html(text)) if kind in _HTML else _of_markdown(name, text)


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{error.strerror or error}") from error
    form = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(form)
    except UnicodeDecodeError as error:
        wrong = form.removesuffix("-sig").upper()
        raise UnreadableError(f"is not {wrong} at byte {error.start}; save it as UTF-8") from error


def _page(name: str, html: Html, title: str = "") -> Page:
    shown = "".join(each.text for each in html.blocks if not isinstance(each, Asked))
    if html.wants_password and len(shown) < _SHORT_PAGE_CHARS:
        raise UnreadableError("asks for a password; save the page that is behind it")
    if re.search(r"\b404\b|\bnot found\b", html.title, re.IGNORECASE) and len(shown) < _SHORT_PAGE_CHARS:
        raise UnreadableError(f'says "{html.title}"')
    return Page(name, title or html.title, html.language, html.blocks)


def _of_markdown(name: str, text: str) -> Page:
    title, front = "", _FRONT_MATTER.match(text)
    if front is not None:
        text = text[front.end() :]
        found = _FRONT_TITLE.search(front[1])
        title = found[1] if found is not None else ""
    html = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
    return _page(name, read_html(html), title)


def _of_table(name: str, text: str) -> Page:
    first = text.partition("\n")[0]
    delimiter = max("\t;,|", key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise UnreadableError(f"is no table: {error}") from error
    header = [cell.strip().casefold() for cell in rows[0]] if rows else []
    places = {
        column: next((header.index(each) for each in names if each in header), -1) for column, names in _COLUMNS.items()
    }
    if -1 in places.values():
        raise UnreadableError('its first row has to name the columns: "question" and "answer"')
    asked = []
    for row in rows[1:]:
        if len(row) > max(places.values()):
            question, answer = (row[places[column]] for column in _COLUMNS)
            asked.append(Asked(" ".join(_plain(question).split()), _plain(answer), whole=True))
    return Page(name, "", "", tuple(each for each in asked if each.question and each.answer))


def _plain(text: str) -> str:
    return text_of(text) if "<" in text or "&" in text else text.strip()


def _of_json(name: str, text: str) -> Iterator[Page]:
    """Yield the articles of a help centre: a list of objects, or an object with one, as Zendesk, Intercom, Freshdesk,
    Chatwoot and Shopify export them. Drafts are left out."""
    try:
        found = msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise UnreadableError(f"is no JSON: {error}") from error
    articles = _articles_in(found)
    if not articles:
        raise UnreadableError('has no list of articles: objects with "title" and "body"')
    for number, article in enumerate(articles, start=1):
        title, body = (_first(article, names) for names in (_TITLES, _BODIES))
        state = str(article.get("state") or article.get("status") or "published").casefold()
        if article.get("draft") is True or state not in (*_PUBLISHED, "2"):  # Freshdesk's number of what is published
            continue
        html = read_html(body)
        language = article.get("locale") or article.get("language") or html.language
        blocks = (Heading(1, " ".join(text_of(title).split())), *html.blocks)
        yield Page(f"{name} {number}", title, language if isinstance(language, str) else "", blocks)


def _articles_in(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, dict):
        if isinstance(found.get("data"), dict):  # as GraphQL answers
            return _articles_in(found["data"])
        lists = [found[name] for name in _LISTS if isinstance(found.get(name), list)]
        if not lists and isinstance(found.get("shop"), dict):
            lists = [list(found["shop"].values())]
        found = lists[0] if lists else []
    if not isinstance(found, list):
        return []
    return [each for each in found if isinstance(each, dict) and _first(each, _TITLES) and _first(each, _BODIES)]


def _first(article: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((article[name] for name in names if isinstance(article.get(name), str) and article[name].strip()), "")
