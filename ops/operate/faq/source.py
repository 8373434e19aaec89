"""Read a site again: its new text where it has a usable one, the last good text where a page fails."""

import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from ops.operate.faq.documents import Document
from ops.operate.faq.files import LeftOut, Pages
from ops.operate.faq.sections import sections_of
from ops.operate.faq.site import Fetched, Site
from ops.operate.faq.state import Kept

_MOST_MISSES: Final = 3
_SAME: Final = 3
"""From this number of addresses on, one text is that of an error page or of a wall."""


class Source:
    """The pages of a site.

    Attributes:
        kept: what is to be kept of each page for the next reading
        stale: the names of pages whose text is that of an earlier reading, since they failed
    """

    def __init__(self, address: str, most_pages: int, known: Mapping[str, Kept]) -> None:
        """Name the site, and what was kept of it."""
        self.kept: dict[str, Kept] = {}
        self.stale: set[str] = set()
        self._site = Site(address, most_pages, known)
        self._known = known

    def read(self, found: Pages) -> None:
        """Add the site's pages to `found`. Raises `SettingsError` if the address itself cannot be fetched."""
        read = [(fetched, _read(fetched.url, fetched.kind, fetched.content)) for fetched in self._site.fetch()]
        times = Counter(_text_of(pages) for _, pages in read)
        for fetched, pages in read:
            why = _fault(pages)
            if not why and times[_text_of(pages)] >= _SAME and self._is_other(fetched.url, pages):
                why = f"has the text of {times[_text_of(pages)] - 1} other pages, as an error page has"
            if why and fetched.url in self._known:
                self._site.failed[fetched.url] = why
            else:
                self._add(found, pages)
                if not why:
                    self.kept[fetched.url] = _kept(fetched, self._known.get(fetched.url))
        for url, why in self._site.failed.items():
            self._keep_last(found, url, why)
        for url in self._site.gone - self._site.failed.keys():
            self._keep_last(found, url, "leads to another page")
        found.left_out += self._site.left_out

    def _add(self, found: Pages, pages: Pages) -> None:
        found.pages += pages.pages
        found.left_out += pages.left_out
        found.ignored += pages.ignored

    def _is_other(self, url: str, pages: Pages) -> bool:
        """Return whether a page that was read earlier had another text."""
        kept = self._known.get(url)
        return kept is not None and _text_of(_read(url, kept.kind, kept.content)) != _text_of(pages)

    def _keep_last(self, found: Pages, url: str, why: str) -> None:
        """Keep the last good text of a page that failed, unless the site has said often enough that it is gone."""
        kept = self._known.get(url)
        if kept is None:
            found.left_out.append(LeftOut(url, "", why))
            return
        misses = kept.misses + 1 if url in self._site.gone else 0
        if misses >= _MOST_MISSES:
            found.left_out.append(LeftOut(url, "", f"{why}, {misses} times in a row; its entries are withdrawn"))
            return
        times = f" ({misses} of {_MOST_MISSES} times)" if misses else ""
        found.left_out.append(LeftOut(url, "", f"{why}{times}; its last good text stays"))
        self.kept[url] = msgspec.structs.replace(kept, misses=misses)
        pages = _read(url, kept.kind, kept.content).pages
        found.pages += pages
        self.stale.update(page.name for page in pages)


def _read(url: str, kind: str, content: str | Document) -> Pages:
    pages = Pages()
    pages.add(url, kind, partial(_given, content))
    return pages


def _given(content: str | Document) -> str | Document:
    return content


def _fault(pages: Pages) -> str:
    """Return why a page that was fetched gives no text; empty if it gives some."""
    if any(sections_of(page) for page in pages.pages):
        return ""
    return next((each.why for each in pages.left_out), "has no text of its own")


def _text_of(pages: Pages) -> tuple[tuple[object, ...], ...]:
    return tuple(page.blocks for page in pages.pages)


def _kept(fetched: Fetched, before: Kept | None) -> Kept:
    """Return what to keep of a page; `before` is what was kept of it."""
    asked_s = time.time() if fetched.is_asked or before is None else before.asked_s
    if before is not None and not fetched.is_new:
        return msgspec.structs.replace(before, lastmod=fetched.lastmod, asked_s=asked_s, misses=0)
    return Kept.of(
        fetched.kind,
        fetched.content,
        etag=fetched.etag,
        modified=fetched.modified,
        lastmod=fetched.lastmod,
        asked_s=asked_s,
    )
