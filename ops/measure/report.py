"""A report as one self-contained HTML file, from the template that all reports share."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ops.measure.plot import Plot
from ops.measure.runner import Cell, show

# Characters that HTML cannot represent or a browser would not show unchanged: controls and lone surrogates.
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section of a report: text, plots, a table, and name-value pairs. Empty parts are omitted."""

    title: str
    text: str = ""
    plots: Sequence[Plot] = ()
    titles: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    pairs: Mapping[str, str] = field(default_factory=dict)


def report(
    title: str,
    lead: str,
    parts: Sequence[Part],
    *,
    headline: Mapping[str, str] | None = None,
    template: Path | None = None,
    **more: Any,
) -> str:
    """Return the HTML file. All values are escaped, and characters that HTML cannot represent become U+FFFD.

    Args:
        title: title of the report
        lead: introductory text
        parts: sections
        headline: the main figures by name
        template: a template that extends `report.html`
        more: variables for that template
    """
    folder, name = (None, "report.html") if template is None else (template.parent, template.name)
    page = _jinja(folder).get_template(name)
    text = page.render(title=title, lead=lead, headline=headline or {}, parts=parts, **more)
    return _UNWRITABLE.sub("\ufffd", text) + "\n"


@cache
def _jinja(folder: Path | None) -> Environment:
    jinja = Environment(
        autoescape=True,
        loader=FileSystemLoader([*([] if folder is None else [folder]), Path(__file__).parent]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters["shown"] = show
    return jinja
