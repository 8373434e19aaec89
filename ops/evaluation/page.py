"""The report: one HTML file that needs nothing else, with every answer to read."""

from collections.abc import Sequence
from typing import Final

from ops.evaluation.judging.fit import Fit, Row
from ops.evaluation.judging.result import LANGUAGES, Figures, Judged, cells_of, count_of, recall_of
from ops.evaluation.page_style import SCRIPT, STYLE
from ops.evaluation.run import Run
from ops.evaluation.table import LADDER, UNHEDGED, counts, share
from ops.measure.page import Html, pairs, paragraph, section, strong, table, text
from ops.measure.page import page as document
from shared.wire.messages import Replaced

_EXPLAINED: Final = (
    "Right is an answer that holds every required fact and no forbidden one, and shows no figure that neither its FAQ "
    "entries nor the conversation bear out; where the FAQ has no answer, one that says so or offers a person. "
    "docs/evaluation.md has the rules."
)


def page(run: Run) -> str:
    """The whole file. Everything that a question, an answer or an entry says is escaped."""
    parts = (
        _figures(run.figures),
        *_ladder(run),
        section("By kind and language", _kinds(run.judged)),
        section("Retrieval", _retrieval(run.judged)),
        section("Thresholds", *_thresholds(run)),
        section("Every answer", _filters(run.judged), *map(_article, run.judged)),
        section("How this was made", _making(run)),
        Html(f"<script>{SCRIPT}</script>"),
    )
    return document("Answers judged", paragraph(text(_EXPLAINED)), parts, style=STYLE)


def _figures(figures: Figures) -> Html:
    parts = (
        f"<div><dt>{_words(name)}</dt><dd>{share(getattr(figures, name))}</dd></div>"
        for name in Figures.__struct_fields__
    )
    return Html(f"<dl class='figures'>{''.join(parts)}</dl>")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _ladder(run: Run) -> list[Html]:
    if not run.ladder:
        return []
    rows = [(rung.name, *(share(getattr(rung.figures, name)) for name in LADDER)) for rung in run.ladder]
    return [section("Before and after", table(("", *map(_words, LADDER)), rows))]


def _kinds(judged: Sequence[Judged]) -> Html:
    total = count_of(judged)
    cells = [(cell.kind, cell.language, cell.count) for cell in cells_of(judged)]
    rows = [(kind, language, *counts(count)) for kind, language, count in (*cells, ("all", "", total))]
    return table(("kind", "language", "n", "right", "share", UNHEDGED, "invented", "by source"), rows, heads=2)


def _retrieval(judged: Sequence[Judged]) -> Html:
    rows = [
        (language, found.n, share(found.at_1), share(found.at_3))
        for language in LANGUAGES
        if (found := recall_of(judged, language)).n
    ]
    return table(("language", "n", "recall@1", "recall@3"), rows)


def _thresholds(run: Run) -> list[Html]:
    used = run.thresholds
    said = (
        f"From a score of {used.confident:g} on an entry fits surely, from {used.weak:g} on it may fit; below, nothing "
        "is known."
    )
    return [paragraph(text(said)), *([] if run.fit is None else _fitted(run.fit))]


def _fitted(fit: Fit) -> list[Html]:
    return [
        paragraph(text(f"By the dev questions: surely from {fit.confident:g} on, maybe from {fit.weak:g} on.")),
        _fit_rows(fit.confident_rows, "surely, of all"),
        _fit_rows(fit.weak_rows, "maybe, of those below"),
    ]


def _fit_rows(rows: Sequence[Row], title: str) -> Html:
    shown = [(f"{row.score:g}", row.n, row.right, f"{row.right / row.n:.0%}") for row in rows if row.n]
    return table(("from score", title, "best entry right", "share"), shown)


def _filters(judged: Sequence[Judged]) -> Html:
    choices = {
        "verdict": ("right", "wrong"),
        "kind": dict.fromkeys(one.question.kind for one in judged),
        "language": dict.fromkeys(one.question.language for one in judged),
        "source": sorted({one.given.source or "none" for one in judged}),
    }
    selects = "".join(
        f"<select name='{name}' aria-label='{name}'><option value=''>every {name}</option>"
        f"{''.join(f'<option>{text(value)}</option>' for value in values)}</select>"
        for name, values in choices.items()
    )
    words = "<input name='text' type='search' placeholder='words' aria-label='words'>"
    return Html(f"<form>{selects}{words}<output></output></form>")


def _article(one: Judged) -> Html:
    question, given, verdict = one.question, one.given, one.verdict
    word = "right" if verdict.right else "wrong"
    source = given.source or "none"
    facts = (question.id, question.kind, question.language, question.split, f"source: {source}")
    said = "".join(f"<span>{text(fact)}</span>" for fact in facts)
    earlier = "".join(
        f"<p class='earlier'>{text(turn.user)}</p><p class='earlier'>→ {text(turn.assistant)}</p>"
        for turn in question.history
    )
    why = "".join(f"<p class='why'>{text(reason)}</p>" for reason in verdict.why)
    return Html(
        f"<article class='{word}' data-verdict='{word}' data-kind='{question.kind}' "
        f"data-language='{question.language}' data-source='{text(source)}'>"
        f"<div class='about'><span class='verdict'>{word}</span>{said}</div>"
        f"{earlier}<p class='asked'>{text(question.question)}</p>"
        f"<p class='answer'>{_marked(given.text, given.replaced) or '–'}</p>{why}{_stands_on(one)}</article>"
    )


def _marked(answer: str, replaced: Sequence[Replaced]) -> Html:
    """With what stands in the model's stead marked."""
    parts: list[str] = []
    at = 0
    for stretch in sorted(replaced, key=lambda stretch: stretch.offset):
        end = stretch.offset + stretch.length
        title = f"in the model's stead: {stretch.id or 'nothing'}"
        parts += [
            text(answer[at : stretch.offset]),
            f"<mark title='{text(title)}'>{text(answer[stretch.offset : end])}</mark>",
        ]
        at = end
    return Html("".join([*parts, text(answer[at:])]))


def _stands_on(one: Judged) -> Html:
    wanted = ", ".join(one.question.entries) or "none"
    must = "; ".join(" / ".join(fact) for fact in one.question.must) or "–"
    found = ", ".join(f"{hit.id} {hit.score:g}" for hit in one.found) or "none"
    entries = "".join(paragraph(strong(entry.id), text(f" {entry.answer}")) for entry in one.given.grounding)
    shown = text(", ".join(entry.id for entry in one.given.grounding) or "nothing")
    asked_for = paragraph(text(f"answered by: {wanted}; must hold: {must}; found: {found}"))
    return Html(f"<details><summary>stands on {shown}</summary>{entries}{asked_for}</details>")


def _making(run: Run) -> Html:
    made = run.environment
    return pairs(
        {
            "command": run.command,
            "questions": f"{len(run.judged)}, split {run.split}",
            "asked": run.asked,
            "date": made.date,
            "machine": f"{made.cpu}, {made.cores} cores",
            "versions": ", ".join(f"{name} {version}" for name, version in made.versions.items()),
        }
    )
