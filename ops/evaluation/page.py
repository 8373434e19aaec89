"""The report: one HTML file that needs nothing else, with every answer to read."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ops.evaluation.fit import Fit, Row
from ops.evaluation.page_style import SCRIPT, STYLE
from ops.evaluation.result import LANGUAGES, Figures, Judged, cells_of, count_of, recall_of
from ops.evaluation.run import Run
from ops.evaluation.table import by_source, share
from shared.messages import Replaced

_EXPLAINED: Final = (
    "Right is an answer that holds every required fact and no forbidden one, and shows no figure that neither its FAQ "
    "entries nor the conversation bear out; where the FAQ has no answer, one that says so or offers a person. "
    "docs/evaluation.md has the rules."
)


def page(run: Run) -> str:
    """The whole file. Everything that a question, an answer or an entry says is escaped."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Replyline: answers judged</title><style>{STYLE}</style></head><body><main>"
        f"<h1>Answers judged</h1><p class='note'>{escape(_EXPLAINED)}</p>"
        f"{_figures(run.figures)}{_ladder(run)}{_kinds(run.judged)}{_retrieval(run.judged)}{_thresholds(run)}"
        f"<h2>Every answer</h2>{_filters(run.judged)}{''.join(map(_article, run.judged))}"
        f"<h2>How this was made</h2>{_making(run)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _figures(figures: Figures) -> str:
    parts = (
        f"<div><dt>{name.replace('_', ' ')}</dt><dd>{share(getattr(figures, name))}</dd></div>"
        for name in Figures.__struct_fields__
    )
    return f"<dl class='figures'>{''.join(parts)}</dl>"


def _ladder(run: Run) -> str:
    if not run.ladder:
        return ""
    names = ("en_right", "zh_right", "invented", "unanswerable_right")
    rows = [(rung.name, *(share(getattr(rung.figures, name)) for name in names)) for rung in run.ladder]
    return f"<h2>Before and after</h2>{_table(('', *(name.replace('_', ' ') for name in names)), rows)}"


def _kinds(judged: Sequence[Judged]) -> str:
    total = count_of(judged)
    cells = [(cell.kind, cell.language, cell.count) for cell in cells_of(judged)]
    rows = [
        (kind, language, count.n, count.right, f"{count.right / count.n:.0%}", count.invented, by_source(count))
        for kind, language, count in (*cells, ("all", "", total))
    ]
    head = ("kind", "language", "n", "right", "share", "invented", "by source")
    return f"<h2>By kind and language</h2>{_table(head, rows)}"


def _retrieval(judged: Sequence[Judged]) -> str:
    rows = [
        (language, found.n, share(found.at_1), share(found.at_3))
        for language in LANGUAGES
        if (found := recall_of(judged, language)).n
    ]
    return f"<h2>Retrieval</h2>{_table(('language', 'n', 'recall@1', 'recall@3'), rows)}"


def _thresholds(run: Run) -> str:
    used = run.thresholds
    said = (
        f"<h2>Thresholds</h2><p>From a score of {used.confident:g} on an entry fits surely, from {used.weak:g} on it "
        "may fit; below, nothing is known.</p>"
    )
    return said + ("" if run.fit is None else _fitted(run.fit))


def _fitted(fit: Fit) -> str:
    surely = _fit_rows(fit.confident_rows, "surely, of all")
    maybe = _fit_rows(fit.weak_rows, "maybe, of those below")
    return f"<p>By the dev questions: surely from {fit.confident:g} on, maybe from {fit.weak:g} on.</p>{surely}{maybe}"


def _fit_rows(rows: Sequence[Row], title: str) -> str:
    shown = [(row.score, row.n, row.right, f"{row.right / row.n:.0%}") for row in rows if row.n]
    return _table(("from score", title, "best entry right", "share"), shown)


def _filters(judged: Sequence[Judged]) -> str:
    choices = {
        "verdict": ("right", "wrong"),
        "kind": dict.fromkeys(one.question.kind for one in judged),
        "language": dict.fromkeys(one.question.language for one in judged),
        "source": sorted({one.given.source or "none" for one in judged}),
    }
    selects = "".join(
        f"<select name='{name}' aria-label='{name}'><option value=''>every {name}</option>"
        f"{''.join(f'<option>{escape(value)}</option>' for value in values)}</select>"
        for name, values in choices.items()
    )
    words = "<input name='text' type='search' placeholder='words' aria-label='words'>"
    return f"<form>{selects}{words}<output></output></form>"


def _article(one: Judged) -> str:
    question, given, verdict = one.question, one.given, one.verdict
    word = "right" if verdict.right else "wrong"
    source = given.source or "none"
    facts = (question.id, question.kind, question.language, question.split, f"source: {source}")
    said = "".join(f"<span>{escape(fact)}</span>" for fact in facts)
    earlier = "".join(
        f"<p class='earlier'>{escape(turn.user)}</p><p class='earlier'>→ {escape(turn.assistant)}</p>"
        for turn in question.history
    )
    why = "".join(f"<p class='why'>{escape(reason)}</p>" for reason in verdict.why)
    return (
        f"<article class='{word}' data-verdict='{word}' data-kind='{question.kind}' "
        f"data-language='{question.language}' data-source='{escape(source)}'>"
        f"<header><span class='verdict'>{word}</span>{said}</header>"
        f"{earlier}<p class='asked'>{escape(question.question)}</p>"
        f"<p class='answer'>{_marked(given.text, given.replaced) or '–'}</p>{why}{_stands_on(one)}</article>"
    )


def _marked(text: str, replaced: Sequence[Replaced]) -> str:
    """With what stands in the model's stead marked."""
    parts: list[str] = []
    at = 0
    for stretch in sorted(replaced, key=lambda stretch: stretch.offset):
        end = stretch.offset + stretch.length
        title = f"in the model's stead: {stretch.id or 'nothing'}"
        parts += [
            escape(text[at : stretch.offset]),
            f"<mark title='{escape(title)}'>{escape(text[stretch.offset : end])}</mark>",
        ]
        at = end
    return "".join([*parts, escape(text[at:])])


def _stands_on(one: Judged) -> str:
    wanted = ", ".join(one.question.entries) or "none"
    must = "; ".join(" / ".join(fact) for fact in one.question.must) or "–"
    found = ", ".join(f"{hit.id} {hit.score:g}" for hit in one.found) or "none"
    entries = "".join(f"<p><b>{escape(entry.id)}</b> {escape(entry.answer)}</p>" for entry in one.given.grounding)
    return (
        f"<details><summary>stands on {escape(', '.join(entry.id for entry in one.given.grounding) or 'nothing')}"
        f"</summary>{entries}<p>answered by: {escape(wanted)}; must hold: {escape(must)}; found: {escape(found)}</p>"
        "</details>"
    )


def _making(run: Run) -> str:
    made = run.environment
    pairs = {
        "command": run.command,
        "questions": f"{len(run.judged)}, split {run.split}",
        "asked": run.asked,
        "date": made.date,
        "machine": f"{made.cpu}, {made.cores} cores",
        "versions": ", ".join(f"{name} {version}" for name, version in made.versions.items()),
    }
    return f"<dl class='made'>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in pairs.items())}</dl>"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    titles = "".join(f"<th scope='col'>{escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(value: object) -> str:
    return f"<td class='n'>{value:g}</td>" if isinstance(value, int | float) else f"<td>{escape(str(value))}</td>"
