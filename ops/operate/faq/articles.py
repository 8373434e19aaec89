"""Find the articles in the JSON that help centres and shops export. Pure.

Zendesk, Intercom, Freshdesk, Chatwoot and Shopify each nest them in another way: an article is any object with a title
and a text, wherever it is.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_TITLES: Final = ("title", "question", "name")
_BODIES: Final = ("body", "body_html", "content", "html", "answer", "description_html", "description", "text")
_STATES: Final = ("state", "status", "visibility")
_PUBLIC: Final = (
    "published",
    "publish",
    "active",
    "live",
    "public",
    "visible",
    "online",
    "approved",
    "all",
    "true",
    "2",
)
"""2 is Freshdesk's number of what is published."""
_DATES: Final = ("published_at", "publishedAt")
_IDS: Final = ("id", "slug", "handle", "html_url", "url")
_LANGUAGES: Final = ("locale", "language")


@dataclass(frozen=True, slots=True)
class Article:
    """An article. `hidden` is the field by which customers do not see it; "" if they do."""

    id: str
    title: str
    body: str
    language: str
    hidden: str


def articles_in(text: str) -> list[Article]:
    """Return the articles of a JSON text. Raises ValueError, in one line with the remedy, if there are none."""
    try:
        found = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error}") from error
    articles = [_article(each) for each in _objects(found)]
    if not articles:
        raise ValueError('has no article: an object with "title" and "body"')
    return articles


def _objects(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        for each in found:
            yield from _objects(each)
    elif isinstance(found, dict):
        if _first(found, _TITLES) and _first(found, _BODIES):
            yield found
        else:
            yield from _objects(list(found.values()))


def _article(found: dict[str, Any]) -> Article:
    title = _first(found, _TITLES)
    ids = (str(found[name]) for name in _IDS if isinstance(found.get(name), (str, int)))
    return Article(next(ids, title), title, _first(found, _BODIES), _first(found, _LANGUAGES), _hidden(found))


def _hidden(found: dict[str, Any]) -> str:
    if "draft" in found and _word(found["draft"]) not in ("false", "0", "none", "no", ""):
        return f"draft {found['draft']}"
    if "published" in found and _word(found["published"]) in ("false", "0", "none", "no", ""):
        return f"published {found['published']}"
    for name in _STATES:
        if name in found and found[name] is not None and _word(found[name]) not in _PUBLIC:
            return f"{name} {found[name]}"
    for name in _DATES:
        if name in found and found[name] is None:
            return f"{name} is null"
    return "user_segment_id" if found.get("user_segment_id") is not None else ""


def _word(value: Any) -> str:
    return str(value).strip().casefold()


def _first(found: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((found[name] for name in names if isinstance(found.get(name), str) and found[name].strip()), "")
