"""A report as one HTML file that needs nothing else: its frame, its figures and tables. Pure.

What is `str` is text and escaped here; what is `Html` was made here, and stands as it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NewType

from ops.measure.page_style import STYLE
from ops.measure.runner import Cell, show

Html = NewType("Html", str)

# What HTML has no way to write, or a browser would not show as it is: controls, and halves of surrogate pairs.
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def text(value: str) -> Html:
    """Escaped, for an element's content or an attribute's value. What cannot be written becomes U+FFFD."""
    return Html(escape(_UNWRITABLE.sub("\ufffd", value)))


def page(title: str, lead: Html, parts: Iterable[Html], *, style: str = "") -> str:
    """The whole file. `lead` says under the title what was found, `style` has the colours of the report's own kinds."""
    document = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>Replyline: {text(title)}</title><style>{STYLE}{style}</style></head><body><main>'
        f"<header><h1>{text(title)}</h1>{lead}</header>{''.join(parts)}</main></body></html>\n"
    )
    return _UNWRITABLE.sub("\ufffd", document)


def section(title: str, *parts: Html) -> Html:
    return Html(f"<section><h2>{text(title)}</h2>{''.join(parts)}</section>")


def paragraph(*parts: Html) -> Html:
    return Html(f"<p>{''.join(parts)}</p>")


def strong(value: str) -> Html:
    return Html(f"<b>{text(value)}</b>")


def abstract(lines: Iterable[Html]) -> Html:
    """What was found, a line each; nothing for none."""
    items = "".join(f"<li>{line}</li>" for line in lines)
    return Html(f"<ul class='abstract'>{items}</ul>" if items else "")


def figure(
    number: int, caption: str, drawings: Sequence[str], *, wide: bool = True, keys: Mapping[str, str] | None = None
) -> Html:
    """`drawings` are HTML; `wide` ones stand alone in their line. `keys` explains colours: what each kind is."""
    drawn = f"<div class='{'wide' if wide else 'panels'}'>{''.join(drawings)}</div>"
    told = "".join(
        f'<span><span class="key {text(kind)}"></span>{text(name)}</span> ' for kind, name in (keys or {}).items()
    )
    caption_html = f"<figcaption><b>Figure {number}.</b> {text(caption)} <span class='keys'>{told}</span></figcaption>"
    return Html(f"<figure>{drawn}{caption_html}</figure>")


def table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, heads: int = 1, kinds: Sequence[str] | None = None
) -> Html:
    """The first `heads` cells of a row name it. `kinds`: a class for each row."""
    lines = []
    for number, row in enumerate(rows):
        names = "".join(f"<th scope='row'>{text(show(cell))}</th>" for cell in row[:heads])
        values = "".join(f"<td>{text(show(cell))}</td>" for cell in row[heads:])
        kind = f" class='{text(kinds[number])}'" if kinds else ""
        lines.append(f"<tr{kind}>{names}{values}</tr>")
    head = "".join(
        f"<th scope='col'{' class=head' if place < heads else ''}>{text(title)}</th>"
        for place, title in enumerate(titles)
    )
    return Html(
        f"<div class='scroll'><table class='rows'><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def pairs(of: Mapping[str, str]) -> Html:
    """Names and what they are."""
    return Html(
        "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in of.items()) + "</dl>"
    )
