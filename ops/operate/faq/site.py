"""Fetch a shop's pages from its site: those that a sitemap lists, or those below an address that link to each other.

The site's robots.txt is obeyed, and other hosts are not visited. Four pages are fetched at a time.
"""

import codecs
import ipaddress
import re
import socket
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit
from xml.etree import ElementTree as ET

import httpx2
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

from ops.operate.diagnose.addresses import check_option
from ops.operate.faq.documents import KINDS, MOST_MIB, MOST_TEXT_MIB, Document, open_document
from ops.operate.faq.files import LeftOut, printable
from ops.operate.faq.state import Kept
from shared.errors import SettingsError
from shared.hosts import WEB
from shared.nouns import counted

_AGENT: Final = "Replyline"
_AT_ONCE: Final = 4
_TIMEOUT_S: Final = 20.0
_PAGE_S: Final = 60.0
_MOST_SITEMAPS: Final = 100
_MOST_REDIRECTS: Final = 5
_MOST_HOSTS: Final = 3
_LASTMOD_S: Final = 24 * 3600.0
"""A page whose date in the sitemap has not changed is not asked for within this time. The date is a hint only."""
_OK, _NOT_MODIFIED, _SERVER_ERROR = 200, 304, 500
_FORBIDDEN: Final = (401, 403)
_GONE: Final = (404, 410)
_KINDS: Final = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/markdown": ".md",
    "text/plain": ".md",
    "text/csv": ".csv",
    "application/json": ".json",
    "application/xml": ".xml",
    "text/xml": ".xml",
    "application/gzip": ".xml",
    "application/x-gzip": ".xml",
    "application/pdf": ".pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
}
_UNNAMED: Final = ("application/octet-stream", "binary/octet-stream", "application/force-download")
_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]+)""", re.IGNORECASE)
_SNIFFED_BYTES: Final = 2_048
# Python's, but no page's. Decoding a page of 16 MiB as punycode would take a day.
_NO_CHARSETS: Final = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page of a site: its address, its kind as a file's suffix, and its text or what was read of a document.

    Attributes:
        etag, modified: what the site calls this version of it
        lastmod: its date in the sitemap
        is_new: the site has sent it; False if it has not changed since it was read
        is_asked: the site was asked for it; False if the sitemap's date has not changed
    """

    url: str
    kind: str
    content: str | Document
    etag: str = ""
    modified: str = ""
    lastmod: str = ""
    is_new: bool = True
    is_asked: bool = True


_FetchAll = Callable[[Iterable[str]], Iterator[Fetched | None]]


class Site:
    """The site of an address, that of a page or of a sitemap.

    Attributes:
        failed: the pages that could not be fetched, each with the reason.
        gone: those of them that the site says are gone (404, 410), or that lead to a page that was read.
        left_out: what else was not read.
    """

    def __init__(self, start: str, most: int, known: Mapping[str, Kept]) -> None:
        """Name the address, the highest number of pages to fetch, and the pages that were read earlier."""
        self.failed: dict[str, str] = {}
        self.gone: set[str] = set()
        self.left_out: list[LeftOut] = []
        self._most = most
        self._known = known
        self._lastmods: dict[str, str] = {}
        # Entries name their page, so customers would read a password.
        check_option("PAGES", start, WEB, "https://HOST/PATH", login="save the pages, and name their folder")
        self._start = start
        self._seen: set[str] = set()
        self._led: dict[str, str] = {}
        self._robots = Protego.parse("")

    def fetch(self) -> Generator[Fetched, None, None]:
        """Yield the pages. Raises `SettingsError` if the address itself cannot be fetched."""
        headers = {
            "user-agent": f"{_AGENT} (faq read)",
            "accept": "text/html, text/markdown, application/json, */*;q=0.5",
        }
        with httpx2.Client(headers=headers, timeout=_TIMEOUT_S) as client, ThreadPool(_AT_ONCE) as pool:
            fetch_all = partial(pool.imap, partial(self._page, client))
            first = self._first(client)
            self._seen.add(first.url)
            if first.kind == ".xml":
                yield from self._pages(fetch_all, self._listed(client, first), first.url, within="")
            else:
                yield first
                yield from self._pages(fetch_all, _links(first), first.url, within=urljoin(first.url, "."))
            left = [url for url in _of_host(self._known, first.url) if url not in self._seen]
            forbidden = {url for url in left if not self._robots.can_fetch(url, _AGENT)}
            self.failed.update(dict.fromkeys(forbidden, "is now forbidden by robots.txt"))
            yield from filter(None, fetch_all([url for url in left if url not in forbidden]))

    def _first(self, client: httpx2.Client) -> Fetched:
        try:
            first = _fetch(client, self._start, partial(self._why_not_start, self._start), self._known)
            self._robots = Protego.parse(_robots(client, first.url, partial(self._why_not_start, self._start)))
        except _NoPageError as error:
            raise SettingsError(f"PAGES {self._start}: {printable(str(error))}") from None
        if not self._robots.can_fetch(first.url, _AGENT):
            remedy = f"allow {_AGENT} there, or save the pages in a folder"
            raise SettingsError(f"PAGES {self._start}: robots.txt forbids it; {remedy}")
        return first

    def _pages(self, fetch_all: _FetchAll, found: list[str], start: str, *, within: str) -> Iterator[Fetched]:
        """Yield the pages `found`, and those below the address `within` that they link to; no others if it is empty."""
        left = max(0, self._most - len(self._known.keys() | ({start} if within else set())))
        while new := [url for url in _of_host(found, start) if self._is_new(url, within)]:
            unknown = [url for url in new if url not in self._known]
            if len(unknown) > left:
                why = f"{counted(len(unknown) - left, 'page')} or more are not read; raise --most-pages"
                self.left_out.append(LeftOut(self._start, "", why))
            too_many = set(unknown[left:])
            left -= len(unknown) - len(too_many)
            found = []
            for page in fetch_all([url for url in new if url not in too_many]):
                if page is not None and page.kind != ".xml":
                    yield page
                    found += _links(page) if within else []

    def _is_new(self, url: str, within: str) -> bool:
        if url in self._seen or not url.startswith(within) or not self._robots.can_fetch(url, _AGENT):
            return False
        self._seen.add(url)
        return True

    def _page(self, client: httpx2.Client, url: str) -> Fetched | None:
        lastmod, kept = self._lastmods.get(url, ""), self._known.get(url)
        if kept is not None and lastmod and lastmod == kept.lastmod and time.time() < kept.asked_s + _LASTMOD_S:
            return Fetched(url, kept.kind, kept.content, lastmod=lastmod, is_new=False, is_asked=False)
        try:
            page = _fetch(client, url, partial(self._why_not, url), self._known)
        except _NoPageError as error:
            self.failed[url] = str(error)
            self.gone |= {url} if error.is_gone else set()
            return None
        if page.url != url:
            first = self._led.setdefault(page.url, url)
            if first != url or page.url in self._seen:  # where several lead to one page it need not be any's new place
                self.gone |= {url, first} & self._known.keys()
                return None
        self._seen.add(page.url)
        return replace(page, lastmod=lastmod)

    def _why_not(self, start: str, url: str) -> str:
        """Return why an address that the page `start` redirects to is not read; empty if it is."""
        if login := _login_in(url):
            return login
        if not _of_host([url], start):
            return f"leads to {urlsplit(url).netloc or url}"
        return "" if self._robots.can_fetch(url, _AGENT) else "leads to a page that robots.txt forbids"

    def _why_not_start(self, start: str, url: str) -> str:
        """Return why an address that the first one redirects to is not read: it may be on another host, but no public
        site may lead to the addresses of a private network."""
        here, there = (urlsplit(each).hostname or "" for each in (start, url))
        if login := _login_in(url):
            return login
        is_inward = here != there and _is_private(there) and not _is_private(here)
        return f"leads to {there}, in a private network; name that itself" if is_inward else ""

    def _listed(self, client: httpx2.Client, first: Fetched) -> list[str]:
        """Return the pages of a sitemap, and of those that it lists. Raises `SettingsError` if it is not a sitemap."""
        pages, sitemaps = _of_sitemap(first)
        if pages is None:
            raise SettingsError(f"PAGES {self._start}: is XML, but no sitemap; name a page or a sitemap")
        for url in _of_host(sitemaps, first.url)[:_MOST_SITEMAPS]:
            if (page := self._page(client, url)) is not None:
                pages |= _of_sitemap(page)[0] or {}
        own = {url: _of_host([url], first.url) for url in pages}
        if others := [url for url in pages if not own[url]]:
            hosts = ", ".join(sorted({urlsplit(url).netloc.rpartition("@")[2] or url for url in others})[:_MOST_HOSTS])
            why = f"lists {counted(len(others), 'page')} of other hosts, which are not read: {hosts}"
            self.left_out.append(LeftOut(self._start, "", f"{why}; name a sitemap of theirs"))
        self._lastmods = {page: pages[url] for url, found in own.items() for page in found}
        return list(self._lastmods)


class _NoPageError(Exception):
    """An address that gives no page; the text is the reason and the remedy. `is_gone`: the site says so."""

    def __init__(self, why: str, *, is_gone: bool = False) -> None:
        super().__init__(why)
        self.is_gone = is_gone


def _is_private(host: str) -> bool:
    """Return whether a host is on this machine or in a private network; by its addresses if it has a name."""
    try:
        # also of an address: "127.1" and "2130706433" are this machine
        found = [each[4][0] for each in socket.getaddrinfo(host, None)]
        return not all(ipaddress.ip_address(str(each).partition("%")[0]).is_global for each in found)
    except (OSError, ValueError):  # has no address: the fetch says so
        return False


def _if_changed(kept: Kept | None) -> dict[str, str]:
    """Return the headers that ask for a page only if it has changed."""
    if kept is None:
        return {}
    return ({"if-none-match": kept.etag} if kept.etag else {}) | (
        {"if-modified-since": kept.modified} if kept.modified else {}
    )


def _fetch(client: httpx2.Client, url: str, why_not: Callable[[str], str], known: Mapping[str, Kept]) -> Fetched:
    """Fetch an address and what it redirects to, unless `why_not` of that gives a reason. A page of `known` that has
    not changed is not sent again."""
    for _ in range(_MOST_REDIRECTS):
        try:
            with client.stream("GET", url, headers=_if_changed(known.get(url))) as response:
                status = response.status_code
                if response.has_redirect_location:
                    url = urldefrag(urljoin(url, response.headers["location"])).url
                    if reason := why_not(url):
                        raise _NoPageError(reason)
                    continue
                if status == _NOT_MODIFIED and (kept := known.get(url)) is not None:
                    return Fetched(url, kept.kind, kept.content, is_new=False)
                if status != _OK:
                    raise _NoPageError(f"has status {status}", is_gone=status in _GONE)
                content = _content(url, kind := _kind(response), response)
                etag, modified = (response.headers.get(name, "") for name in ("etag", "last-modified"))
                return Fetched(str(response.url), kind, content, etag, modified)
        except httpx2.TimeoutException:
            raise _NoPageError(f"does not answer within {_TIMEOUT_S:.0f} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise _NoPageError(f"cannot be fetched: {str(error) or type(error).__name__}") from None
    raise _NoPageError(f"redirects more than {_MOST_REDIRECTS} times")


def _login_in(url: str) -> str:
    """Return why an address with a password, which customers would read, is not read; empty if it has none."""
    return "leads to an address with a user or a password" if "@" in urlsplit(url).netloc else ""


def _kind(response: httpx2.Response) -> str:
    named = response.headers.get("content-type", "text/html").partition(";")[0].strip().lower()
    ending = PurePosixPath(response.url.path).suffix.lower()
    if named in _UNNAMED and ending in KINDS:
        return ending
    if named not in _KINDS:
        raise _NoPageError(f"is {named or 'of no type'}, which is not read; save it as HTML, Markdown or CSV")
    return _KINDS[named]


def _content(url: str, kind: str, response: httpx2.Response) -> str | Document:
    data = _read(response, MOST_MIB if kind in KINDS else MOST_TEXT_MIB)
    if kind in KINDS:
        return open_document(kind, bytes(data))
    if kind == ".xml" and data.startswith(b"\x1f\x8b"):
        return _unpacked(bytes(data)).decode("utf-8", "replace")
    meta = _CHARSET.search(data[:_SNIFFED_BYTES])
    charset = response.charset_encoding or (meta[1].decode() if meta else "utf-8")
    try:
        return data.decode(_codec(charset))
    except LookupError:
        raise _NoPageError(f"is in {charset}, which is unknown; save it as UTF-8") from None
    except UnicodeDecodeError as error:
        raise _NoPageError(f"is not {charset}, as it says, at byte {error.start} of {url}") from None


def _codec(charset: str) -> str:
    """Return a charset's name in Python. Raises `LookupError` if pages have no such charset."""
    if (name := codecs.lookup(charset).name.replace("_", "-")) in _NO_CHARSETS:
        raise LookupError
    return "utf-8-sig" if name == "utf-8" else name


def _read(response: httpx2.Response, most_mib: int = MOST_TEXT_MIB) -> bytearray:
    """Read a body. Raises `_NoPageError` if it is too long, or too slow: each byte may come in time."""
    data, until_s = bytearray(), time.monotonic() + _PAGE_S
    for part in response.iter_bytes():
        data += part
        if len(data) > most_mib << 20:
            raise _NoPageError(f"has more than {most_mib} MiB; split it")
        if time.monotonic() > until_s:
            raise _NoPageError(f"takes longer than {_PAGE_S:.0f} s")
    return data


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(data, MOST_TEXT_MIB << 20)
    except zlib.error:
        raise _NoPageError("is no gzip file") from None
    if unpacking.unconsumed_tail:
        raise _NoPageError(f"has more than {MOST_TEXT_MIB} MiB; split it")
    return found


def _robots(client: httpx2.Client, url: str, why_not: Callable[[str], str]) -> str:
    """Return a host's robots.txt; nothing if it has none. Raises `_NoPageError` if it cannot be read: it may
    forbid everything."""
    address = urljoin(url, "/robots.txt")
    try:
        status, text = _robots_at(client, address, why_not)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, _NoPageError) as error:
        raise _NoPageError(f"{address} cannot be read: {str(error) or type(error).__name__}") from None
    if status >= _SERVER_ERROR:
        raise _NoPageError(f"{address} has status {status}, so nothing may be read; try later")
    if status in _FORBIDDEN:
        return "User-agent: *\nDisallow: /"
    return text.removeprefix("\ufeff") if status == _OK else ""


def _robots_at(client: httpx2.Client, url: str, why_not: Callable[[str], str]) -> tuple[int, str]:
    """Return the status and the text of a robots.txt, which may redirect to another host."""
    for _ in range(_MOST_REDIRECTS):
        with client.stream("GET", url) as response:
            if not response.has_redirect_location:
                return response.status_code, _read(response).decode("utf-8", "replace")
            url = urljoin(url, response.headers["location"])
        if reason := why_not(url):
            raise _NoPageError(reason)
    raise _NoPageError(f"redirects more than {_MOST_REDIRECTS} times")


def _links(page: Fetched) -> list[str]:
    if page.kind != ".html" or isinstance(page.content, Document):
        return []
    tree = LexborHTMLParser(page.content)
    base = tree.css_first("base[href]")
    start, found = page.url, []
    with suppress(ValueError):  # a malformed address
        start = page.url if base is None else urljoin(page.url, base.attributes["href"] or "")
    for link in tree.css("a[href]"):
        try:
            found.append(urljoin(start, (link.attributes["href"] or "").strip()))
        except ValueError:  # a malformed address
            continue
    return found


def _of_sitemap(page: Fetched) -> tuple[dict[str, str] | None, list[str]]:
    """Return the pages, each with its date, and the sitemaps that a sitemap lists; None if it is no sitemap."""
    if isinstance(page.content, Document):
        return None, []
    try:
        root = ET.fromstring(page.content.strip())  # noqa: S314 - expat itself refuses entities that grow
    except (ET.ParseError, ValueError):
        return None, []
    kind = root.tag.rpartition("}")[2]
    space = root.tag.removesuffix(kind)
    named = {
        (each.findtext(f"{space}loc") or "").strip(): (each.findtext(f"{space}lastmod") or "").strip() for each in root
    }
    if kind == "urlset":
        return named, []
    return ({}, list(named)) if kind == "sitemapindex" else (None, [])


def _of_host(urls: Iterable[str], start: str) -> list[str]:
    """Return the addresses on the host of `start`, without fragments, and without those that have a password."""
    host, found = httpx2.URL(start).netloc, []
    for url in urls:
        try:
            page = httpx2.URL(urldefrag(url).url)
        except (ValueError, httpx2.InvalidURL):
            continue
        if page.scheme in WEB and page.netloc == host and not page.userinfo:
            found.append(str(page))
    return found
