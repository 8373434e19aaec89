"""What `replyline eval` does: reads the questions, asks them, judges, shows and writes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from ops.evaluation.guard_cost import measure
from ops.evaluation.in_process import as_set
from ops.evaluation.judging.fit import Fit, fit
from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions
from ops.evaluation.judging.result import Bound, Judged, cells_of, count_of, figures_of, recall_of
from ops.evaluation.own_system import Variant
from ops.evaluation.page import page
from ops.evaluation.run import Asker, Run, Rung
from ops.evaluation.table import LADDER, print_run, share
from ops.measure.environment import environment
from ops.measure.runner import check_writable, progress_bar, write_json
from ops.model.embeddings import searched_by, with_prepared_embeddings
from ops.model.terminal import ensure_model
from shared.errors import ReplylineError, SettingsError
from shared.faq import FaqIndex
from shared.faq.answer_policy import AnswerPolicy, Thresholds
from shared.faq.embedder import Embedder
from shared.faq.vectors import Embed
from shared.settings import Settings
from shared.wire.messages import Language
from workers.loading import load_model

Chosen = Literal["dev", "held_out", "all"]

_RUNGS: Final = ("raw model", "+ grounding", "+ adapter", "+ policy and guard")
_GUARD_ROUNDS: Final = 10
_GUARD_TOKENS: Final = 64


class BoundMissed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "bound_missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """As they were typed. With `url` a running system is asked, and no variant of it can be chosen."""

    command: str
    split: Chosen = "held_out"
    language: Language | None = None
    questions: Path = PACKAGED_QUESTIONS
    limit: int | None = None
    clients: int = 6
    url: str | None = None
    token: str | None = None
    variant: Variant = field(default_factory=Variant)
    raw_model_dir: Path | None = None
    ladder: bool = False
    alone: bool = False
    guard_cost: bool = False
    bounds: Sequence[Bound] = ()
    json_path: Path | None = None
    html_path: Path | None = None


async def evaluate(settings: Settings, options: Options, console: Console) -> None:
    """Raises `SettingsError` for bad input, `ServiceError`, `ConnectFailed`, and `BoundMissed` at last."""
    _check(options)
    settings = with_prepared_embeddings(settings)
    embed = Embedder.named_by(settings.faq)
    index = FaqIndex.load(options.variant.faq or settings.faq.path, embed=embed)
    questions = read_questions(options.questions, index.entries)
    asker = Asker(
        settings=settings,
        questions=chosen(questions, options),
        index=index,
        clients=options.clients,
        alone=options.alone,
        embed=embed,
    )
    console.print(f"search: {searched_by(settings)}")
    rungs: list[Rung] = []
    if options.url is not None:
        with progress_bar(console, options.url, len(asker.questions)) as progress:
            judged = await asker.at(options.url, options.token, progress)
    else:
        for name, variant in variants_of(options).items():
            if settings.worker.engine == "onnx":
                ensure_model(variant.model_dir or settings.model.dir, console)
            with progress_bar(console, name if options.ladder else "asking", len(asker.questions)) as progress:
                judged = await asker.own(variant, progress)
            rungs.append(Rung(name=name, figures=figures_of(judged)))
    figures = figures_of(judged)
    if options.guard_cost:
        cost = await asyncio.to_thread(_guard_cost, settings, options.variant, options.clients, console)
        figures = msgspec.structs.replace(figures, guard_throughput_ratio=cost)
    run = Run(
        command=options.command,
        split=options.split,
        asked=_asked(settings, options),
        thresholds=thresholds_of(settings),
        environment=environment(engine=settings.worker.engine, broker="unknown" if options.url else "embedded"),
        judged=tuple(judged),
        figures=figures,
        ladder=tuple(rungs) if options.ladder else (),
        fit=fit_on_dev(questions, index, embed),
    )
    _show(run, console)
    _write(run, options)
    missed = [why for bound in options.bounds if (why := bound.missed(run.figures)) is not None]
    if missed:
        raise BoundMissed("; ".join(missed))


def show_fit(settings: Settings, options: Options, console: Console) -> None:
    """The thresholds by the dev questions, and those in use. Raises `SettingsError`."""
    _check(options)
    settings = with_prepared_embeddings(settings)
    embed = Embedder.named_by(settings.faq)
    index = FaqIndex.load(options.variant.faq or settings.faq.path, embed=embed)
    fitted = fit_on_dev(read_questions(options.questions, index.entries), index, embed)
    if fitted is None:
        raise SettingsError(f"{options.questions}: has no dev question to fit on; add some")
    console.print(f"search: {searched_by(settings)}")
    _print_fit(fitted, console)
    used = thresholds_of(settings)
    console.print(f"chosen: confident {fitted.confident:g}, weak {fitted.weak:g}")
    console.print(f"in use: confident {used.confident:g}, weak {used.weak:g}")
    write_json(options.json_path, fitted)


def fit_on_dev(questions: Sequence[Question], index: FaqIndex, embed: Embed | None = None) -> Fit | None:
    """None where there is no dev question."""
    dev = [question for question in questions if question.split == "dev"]
    return fit(dev, index, embed) if dev else None


def thresholds_of(settings: Settings) -> Thresholds:
    """Those in use."""
    return AnswerPolicy.of(
        settings.answers, languages=None, most=settings.worker.grounding_entries, handoff=True
    ).thresholds


def _guard_cost(settings: Settings, variant: Variant, clients: int, console: Console) -> float:
    """Return tokens a second with the guard over without, of the model that has answered. Raises `ModelError`."""
    chosen = as_set(settings, variant, clients)
    model = load_model(chosen)
    try:
        cost = measure(model, chosen, console, batch=clients, rounds=_GUARD_ROUNDS, new_tokens=_GUARD_TOKENS)
    finally:
        model.engine.close()
    return cost.ratio


def _check(options: Options) -> None:
    for path in (options.json_path, options.html_path):
        check_writable(path)
    varied = (
        options.ladder or options.alone or options.guard_cost or options.variant != Variant(faq=options.variant.faq)
    )
    if options.url is not None and varied:
        raise SettingsError(
            f"--url {options.url}: what runs there is as it is; leave out --engine-alone, --ladder, --model-dir, "
            "--policy, --guard and --guard-cost"
        )


def chosen(questions: Sequence[Question], options: Options) -> list[Question]:
    """Those that are asked. Raises `SettingsError` where there is none."""
    some = [
        question
        for question in questions
        if options.split in {"all", question.split} and options.language in {None, question.language}
    ]
    if not some:
        raise SettingsError(f"{options.questions}: has no question of split {options.split} in {options.language}")
    if options.limit is None or options.limit >= len(some):
        return some
    return [some[at * len(some) // options.limit] for at in range(options.limit)]  # of every part of the file


def variants_of(options: Options) -> dict[str, Variant]:
    """What is asked, by name; of a ladder each with one thing more than the one before."""
    if not options.ladder:
        return {_RUNGS[-1]: options.variant}
    raw = Variant(model_dir=options.raw_model_dir, policy="model", guard=False, faq=options.variant.faq)
    own = options.variant.model_dir
    variants = (
        replace(raw, grounding_entries=0),
        raw,
        replace(raw, model_dir=own),
        options.variant,
    )
    return dict(zip(_RUNGS, variants, strict=True))


def _asked(settings: Settings, options: Options) -> str:
    if options.url is not None:
        return options.url
    answers, variant = settings.answers, options.variant
    guard = answers.guard if variant.guard is None else variant.guard
    return (
        f"{'the engine alone' if options.alone else 'a system of its own'}: "
        f"model {(variant.model_dir or settings.model.dir).name}, "
        f"engine {settings.worker.engine}, policy {variant.policy or answers.policy}, guard {'on' if guard else 'off'}"
    )


# --- what is shown and written


class _Answer(Struct, frozen=True, kw_only=True):
    id: str
    source: str | None
    right: bool
    why: tuple[str, ...]
    answer: str


def _write(run: Run, options: Options) -> None:
    if options.html_path is not None:
        options.html_path.write_text(page(run), encoding="utf-8")
    if options.json_path is None:
        return
    result = {
        **msgspec.structs.asdict(run.figures),
        "recall": {language: recall_of(run.judged, language) for language in ("en", "zh")},
        "all": count_of(run.judged),
        "by_kind": cells_of(run.judged),
        "ladder": run.ladder,
        "thresholds": {"confident": run.thresholds.confident, "weak": run.thresholds.weak},
        "fit": run.fit,
        "asked": run.asked,
        "split": run.split,
        "command": run.command,
        "environment": run.environment,
        "answers": [_answer(one) for one in run.judged],
    }
    write_json(options.json_path, result)


def _answer(one: Judged) -> _Answer:
    return _Answer(
        id=one.question.id,
        source=one.given.source,
        right=one.verdict.right,
        why=one.verdict.why,
        answer=one.given.text,
    )


def _show(run: Run, console: Console) -> None:
    if run.ladder:
        _print_ladder(run.ladder, console)
    print_run(console, run.judged, run.figures)


def _print_ladder(rungs: Sequence[Rung], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in LADDER:
        table.add_column(name.replace("_", " "), justify="right")
    for rung in rungs:
        table.add_row(rung.name, *(share(getattr(rung.figures, name)) for name in LADDER))
    console.print(table)
    console.print()


def _print_fit(fitted: Fit, console: Console) -> None:
    for title, rows in (("confident", fitted.confident_rows), ("weak", fitted.weak_rows)):
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for name in rows[0].__struct_fields__:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*(f"{value:g}" for value in msgspec.structs.astuple(row)))
        console.print(table)
