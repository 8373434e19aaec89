"""Find the questions in a page's schema.org data. Pure."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_WRAPPING: Final = re.compile(r"^\s*(?:/[/*])?\s*<!\[CDATA\[\s*(?:\*/)?|(?:/[/*])?\s*\]\]>\s*(?:\*/)?\s*$")
_TRAILING_COMMA: Final = re.compile(r",(\s*[\]}])")


def questions_in(script: str) -> Iterator[tuple[str, str]]:
    """Yield each question with its answers, as HTML. Data that is no JSON has none."""
    text = _WRAPPING.sub("", script)
    for each in (text, _TRAILING_COMMA.sub(r"\1", text)):
        try:
            found = json.loads(each, strict=False)
        except (ValueError, RecursionError):
            continue
        yield from _questions(found)
        return


def _questions(found: Any) -> Iterator[tuple[str, str]]:
    if isinstance(found, list):
        for each in found:
            yield from _questions(each)
    elif isinstance(found, dict):
        if any(kind.rpartition("/")[2] == "Question" for kind in _listed(found.get("@type")) if isinstance(kind, str)):
            answers = _listed(found.get("acceptedAnswer")) or _listed(found.get("suggestedAnswer"))
            texts = [each["text"] for each in answers if isinstance(each, dict) and isinstance(each.get("text"), str)]
            if texts and isinstance(found.get("name"), str):
                yield found["name"], "".join(f"<p>{text}</p>" for text in texts)
        else:
            yield from _questions(list(found.values()))


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
