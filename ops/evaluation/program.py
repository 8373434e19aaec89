"""What `replyline eval` does: reads the questions, asks them, judges, shows and writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console

from ops.evaluation.asking import Ask, Gateway, Variant, ask_all, own_system
from ops.evaluation.judging.fit import Fit, fit
from ops.evaluation.judging.judge import judge
from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions
from ops.evaluation.judging.result import Bound, Judged, cells_of, count_of, figures_of, recall_of
from ops.evaluation.judging.retrieval import find
from ops.evaluation.table import print_fit, print_run
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

Chosen = Literal["dev", "held_out", "all"]


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
    bounds: Sequence[Bound] = ()
    json_path: Path | None = None


@dataclass(frozen=True, slots=True)
class _Subject:
    """The questions, and the FAQ that they are about."""

    settings: Settings
    questions: Sequence[Question]
    index: FaqIndex
    embed: Embed | None

    @classmethod
    def read(cls, settings: Settings, options: Options) -> "_Subject":
        """Raises `SettingsError`."""
        check_writable(options.json_path)
        settings = with_prepared_embeddings(settings)
        embed = Embedder.named_by(settings.faq)
        index = FaqIndex.load(options.variant.faq or settings.faq.path, embed=embed)
        return cls(settings, read_questions(options.questions, index.entries), index, embed)


async def evaluate(settings: Settings, options: Options, console: Console) -> None:
    """Raises `SettingsError` for bad input, `ServiceError`, `ConnectFailed`, and `BoundMissed` at last."""
    if options.url is not None and options.variant != Variant(faq=options.variant.faq):
        raise SettingsError(
            f"--url {options.url}: what runs there is as it is; leave out --model-dir, --policy and --guard"
        )
    subject = _Subject.read(settings, options)
    questions = chosen(subject.questions, options)
    console.print(f"search: {searched_by(subject.settings)}")
    if options.url is None and settings.worker.engine == "onnx":
        ensure_model(options.variant.model_dir or settings.model.dir, console)
    with progress_bar(console, options.url or "asking", len(questions)) as progress:
        judged = await _judged(subject, questions, options, progress)
    figures = figures_of(judged)
    print_run(console, judged, figures)
    write_json(options.json_path, _result(subject, options, judged))
    missed = [why for bound in options.bounds if (why := bound.missed(figures)) is not None]
    if missed:
        raise BoundMissed("; ".join(missed))


def show_fit(settings: Settings, options: Options, console: Console) -> None:
    """The thresholds by the dev questions, and those in use. Raises `SettingsError`."""
    subject = _Subject.read(settings, options)
    fitted = fit_on_dev(subject.questions, subject.index, subject.embed)
    if fitted is None:
        raise SettingsError(f"{options.questions}: has no dev question to fit on; add some")
    console.print(f"search: {searched_by(subject.settings)}")
    print_fit(console, fitted)
    used = thresholds_of(subject.settings)
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


async def _judged(
    subject: _Subject, questions: Sequence[Question], options: Options, progress: Callable[[int], None]
) -> list[Judged]:
    """Of a system of its own, or of what stands at the address."""
    if options.url is not None:
        ask: Ask = Gateway(url=options.url, token=options.token).ask
        given = await ask_all(questions, ask, clients=options.clients, progress=progress)
    else:
        entries = subject.index.entries
        async with own_system(subject.settings, options.variant, clients=options.clients, entries=entries) as ask:
            given = await ask_all(questions, ask, clients=options.clients, progress=progress)
    found = find(questions, subject.index, subject.embed)
    return [
        Judged(question=question, given=answer, verdict=judge(question, answer), found=hits)
        for question, answer, hits in zip(questions, given, found, strict=True)
    ]


def _result(subject: _Subject, options: Options, judged: Sequence[Judged]) -> dict[str, object]:
    settings = subject.settings
    used = thresholds_of(settings)
    return {
        **msgspec.structs.asdict(figures_of(judged)),
        "recall": {language: recall_of(judged, language) for language in ("en", "zh")},
        "all": count_of(judged),
        "by_kind": cells_of(judged),
        "thresholds": {"confident": used.confident, "weak": used.weak},
        "fit": fit_on_dev(subject.questions, subject.index, subject.embed),
        "asked": options.url or _own(settings, options.variant),
        "split": options.split,
        "command": options.command,
        "environment": environment(engine=settings.worker.engine, broker="unknown" if options.url else "embedded"),
        "answers": [_answer(one) for one in judged],
    }


def _answer(one: Judged) -> dict[str, object]:
    question, given, verdict = one.question, one.given, one.verdict
    return {
        "id": question.id,
        "question": question.question,
        "source": given.source,
        "right": verdict.right,
        "why": verdict.why,
        "answer": given.text,
    }


def _own(settings: Settings, variant: Variant) -> str:
    answers = settings.answers
    guard = answers.guard if variant.guard is None else variant.guard
    return (
        f"a system of its own: model {(variant.model_dir or settings.model.dir).name}, "
        f"engine {settings.worker.engine}, policy {variant.policy or answers.policy}, guard {'on' if guard else 'off'}"
    )
