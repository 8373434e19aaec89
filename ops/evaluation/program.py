"""`replyline eval`: read the questions, ask them, judge, show and write."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from ops.evaluation.asking import Ask, Gateway, ask_all, own_system
from ops.evaluation.decision.calibrating import bounds_of
from ops.evaluation.decision.corpora import FOLLOW_UPS, NEAR_MISSES
from ops.evaluation.decision.measuring import claimed_when_there
from ops.evaluation.judging.fit import Fit, fit
from ops.evaluation.judging.judge import judge
from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions
from ops.evaluation.judging.result import Judged, cells_of, count_of, figures_of, parse_bound, recall_of
from ops.evaluation.judging.retrieval import find
from ops.evaluation.judging.shares import keys_of, shares_of
from ops.evaluation.options import EvaluationOptions
from ops.evaluation.table import print_fit, print_run, print_shares
from ops.measure.environment import environment
from ops.measure.runner import progress_bar, write_json
from ops.model.embeddings import searched_by, with_prepared_embeddings
from ops.model.terminal import ensure_engine
from shared.errors import ReplylineError, SettingsError
from shared.faq import FaqIndex
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.decision.sureness import Thresholds
from shared.faq.embedder import Embedder
from shared.faq.vectors import Embed
from shared.settings import Settings


class BoundMissed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "bound_missed"


@dataclass(frozen=True, slots=True)
class _Subject:
    """The questions, and the FAQ that they are about."""

    settings: Settings
    questions: Sequence[Question]
    index: FaqIndex
    embed: Embed | None

    @classmethod
    def read(cls, settings: Settings, options: EvaluationOptions, *also: Path) -> "_Subject":
        """Read what is to be evaluated: with the packaged questions those of `also`. Raises `SettingsError`."""
        settings = with_prepared_embeddings(settings)
        embed = Embedder.named_by(settings.faq)
        index = FaqIndex.load(options.faq or settings.faq.path, embed=embed)
        files = [options.questions] if options.questions is not None else [PACKAGED_QUESTIONS, *also]
        questions = [question for file in files for question in read_questions(file, index.entries)]
        return cls(settings, questions, index, embed)


async def evaluate(settings: Settings, options: EvaluationOptions, command: str, console: Console) -> None:
    """Evaluate a system. Raises `SettingsError` for bad input, `ServiceError`, `ConnectFailed`, and `BoundMissed` at
    last."""
    bounds = [parse_bound(text) for text in options.require or ()]
    if options.url is not None and (options.model_dir, options.policy, options.guard) != (None, None, None):
        raise SettingsError(
            f"--url {options.url}: what runs there is as it is; leave out --model-dir, --policy and --guard"
        )
    subject = _Subject.read(settings, options, NEAR_MISSES, FOLLOW_UPS)
    questions = chosen(subject.questions, options)
    console.print(f"search: {searched_by(subject.settings)}")
    if options.url is None:
        ensure_engine(settings, console, options.model_dir)
    judged = await _judged(subject, questions, options, console)
    figures = figures_of(judged)
    shares = shares_of(
        judged, claimed_when_there(questions, subject.index.entries, _policy_of(subject.settings), subject.embed)
    )
    print_run(console, judged, figures)
    print_shares(console, shares)
    write_json(options.json_path, _result(subject, options, command, judged) | keys_of(shares))
    missed = [why for bound in bounds if (why := bound.missed(figures)) is not None]
    if missed:
        raise BoundMissed("; ".join(missed))


def show_fit(settings: Settings, options: EvaluationOptions, console: Console) -> None:
    """Show the thresholds fitted on the dev questions and those in use. Raises `SettingsError`."""
    subject = _Subject.read(settings, options)
    fitted = fit_on_dev(subject.questions, subject.index)
    if fitted is None:
        raise SettingsError(f"{options.questions or PACKAGED_QUESTIONS}: has no dev question to fit on; add some")
    console.print(f"search: {searched_by(subject.settings)}")
    print_fit(console, fitted)
    for language, bound in bounds_of(subject.index).items():
        console.print(
            f"generated near misses {language}: confident {bound.sureness:.2f} claims {bound.alpha:.0%} at most "
            f"(conformal, n = {bound.n})"
        )
    used = thresholds_of(subject.settings)
    console.print(f"chosen: confident {fitted.confident:g}, weak {fitted.weak:g}")
    weak = "by the FAQ's own off-topic scores" if used.weak is None else f"{used.weak:g}"
    console.print(f"in use: confident {used.confident:g}, weak {weak}")
    write_json(options.json_path, fitted)


def fit_on_dev(questions: Sequence[Question], index: FaqIndex) -> Fit | None:
    """Return the thresholds fitted on the dev questions but for near misses; None without any."""
    dev = [question for question in questions if question.split == "dev" and question.near is None]
    return fit(dev, index) if dev else None


def thresholds_of(settings: Settings) -> Thresholds:
    """Return the thresholds in use."""
    return _policy_of(settings).thresholds


def _policy_of(settings: Settings) -> AnswerPolicy:
    most = settings.worker.grounding_entries
    return AnswerPolicy.of(settings.answers, languages=None, most=most, handoff=True)


def chosen(questions: Sequence[Question], options: EvaluationOptions) -> list[Question]:
    """Return the questions to ask. Raises `SettingsError` if no question is left."""
    some = [
        question
        for question in questions
        if options.split in {"all", question.split} and options.language in {None, question.language}
    ]
    if not some:
        path = options.questions or PACKAGED_QUESTIONS
        raise SettingsError(f"{path}: has no question of split {options.split} in {options.language}")
    if options.limit is None or options.limit >= len(some):
        return some
    return [some[at * len(some) // options.limit] for at in range(options.limit)]  # of every part of the file


async def judged_system(settings: Settings, options: EvaluationOptions, console: Console) -> list[Judged]:
    """Return the judged answers of a system, and show only how many there are. Raises as `evaluate` does, but for
    `BoundMissed`."""
    subject = _Subject.read(settings, options)
    return await _judged(subject, chosen(subject.questions, options), options, console)


async def _judged(
    subject: _Subject, questions: Sequence[Question], options: EvaluationOptions, console: Console
) -> list[Judged]:
    """Return the judged answers of a separate system, or of the system at the given address."""
    with progress_bar(console, options.url or "asking", len(questions)) as progress:
        if options.url is not None:
            ask: Ask = Gateway(url=options.url, token=options.token).ask
            given = await ask_all(questions, ask, clients=options.clients, progress=progress)
        else:
            entries = subject.index.entries
            async with own_system(subject.settings, options, entries) as ask:
                given = await ask_all(questions, ask, clients=options.clients, progress=progress)
    found = find(questions, subject.index)
    return [
        Judged(question=question, given=answer, verdict=judge(question, answer), found=hits)
        for question, answer, hits in zip(questions, given, found, strict=True)
    ]


def _result(subject: _Subject, options: EvaluationOptions, command: str, judged: Sequence[Judged]) -> dict[str, object]:
    settings = subject.settings
    used = thresholds_of(settings)
    return {
        **msgspec.structs.asdict(figures_of(judged)),
        "recall": {language: recall_of(judged, language) for language in ("en", "zh")},
        "all": count_of(judged),
        "by_kind": cells_of(judged),
        "thresholds": {"confident": used.confident, "weak": used.weak},
        "fit": fit_on_dev(subject.questions, subject.index),
        "asked": options.url or _own(settings, options),
        "split": options.split,
        "command": command,
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


def _own(settings: Settings, options: EvaluationOptions) -> str:
    answers = settings.answers
    guard = answers.guard if options.guard is None else options.guard
    return (
        f"a system of its own: model {(options.model_dir or settings.model.dir).name}, "
        f"engine {settings.worker.engine}, policy {options.policy or answers.policy}, guard {'on' if guard else 'off'}"
    )
