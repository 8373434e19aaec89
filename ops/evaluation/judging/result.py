"""The result of a run: every question with its answer and verdict, and the shares that are held to a bound. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from ops.evaluation.judging.judge import Given, Verdict
from ops.evaluation.judging.questions import KINDS, Kind, Question
from ops.evaluation.judging.retrieval import Hit, Recall, recall
from shared.errors import SettingsError
from shared.wire.messages import Language

LANGUAGES: Final[tuple[Language, ...]] = ("en", "zh")
# What the FAQ cannot answer; small talk is no question.
_WITHOUT_ANSWER: Final = frozenset({"unanswerable", "astray"})
# Of these less is better.
_AT_MOST: Final = frozenset({"invented", "invented_by_model", "hedged"})


class Judged(Struct, frozen=True, kw_only=True):
    """One question."""

    question: Question
    given: Given
    verdict: Verdict
    found: tuple[Hit, ...]


class Count(Struct, frozen=True, kw_only=True):
    """Some questions: how many, how many right, how many of these without a hedge, how many answers with an invented
    figure, whose words they were."""

    n: int
    right: int
    right_unhedged: int
    invented: int
    by_source: dict[str, int]


class Cell(Struct, frozen=True, kw_only=True):
    kind: Kind
    language: Language
    count: Count


class Figures(Struct, frozen=True, kw_only=True):
    """The shares, each None if no question of that sort was asked.

    Attributes:
        en_right, zh_right: of the questions that the FAQ answers, those answered right, by any source.
        en_right_unhedged, zh_right_unhedged: of the same questions, those answered right without a quote.
        en_right_by_model: of the English ones that the model answered, those answered right.
        invented: of all English answers, those with a figure that no source supports.
        invented_by_model: of the model's answers in either language, the same.
        unanswerable_right: of the questions without an answer in the FAQ, attempts to mislead included, those handled
            right.
        hedged: of the questions that the FAQ answers, those for which an entry was quoted.
    """

    en_right: float | None
    en_right_unhedged: float | None
    zh_right: float | None
    zh_right_unhedged: float | None
    en_right_by_model: float | None
    invented: float | None
    invented_by_model: float | None
    unanswerable_right: float | None
    small_talk_right: float | None
    hedged: float | None
    recall_at_1: float | None
    recall_at_3: float | None


def figures_of(judged: Sequence[Judged]) -> Figures:
    """Return the shares of a run."""
    found = recall_of(judged)
    return Figures(
        en_right=_right(judged, lambda one: _asked(one, "en")),
        en_right_unhedged=_share(judged, lambda one: _asked(one, "en"), _right_unhedged),
        zh_right=_right(judged, lambda one: _asked(one, "zh")),
        zh_right_unhedged=_share(judged, lambda one: _asked(one, "zh"), _right_unhedged),
        en_right_by_model=_right(judged, lambda one: _asked(one, "en") and one.given.by_model),
        invented=_share(judged, lambda one: one.question.language == "en", _invents),
        invented_by_model=_share(judged, lambda one: one.given.by_model, _invents),
        unanswerable_right=_right(
            judged, lambda one: not one.question.answerable and one.question.kind in _WITHOUT_ANSWER
        ),
        small_talk_right=_right(judged, lambda one: one.question.kind == "small_talk"),
        hedged=_share(judged, lambda one: one.question.answerable, _hedged),
        recall_at_1=found.at_1,
        recall_at_3=found.at_3,
    )


def recall_of(judged: Sequence[Judged], language: Language | None = None) -> Recall:
    """Return the recall of one language, or of all."""
    some = [one for one in judged if language in {None, one.question.language}]
    return recall([one.question for one in some], [one.found for one in some])


def cells_of(judged: Sequence[Judged]) -> list[Cell]:
    """Return a cell for each kind and language that occurs."""
    return [
        Cell(kind=kind, language=language, count=count_of(some))
        for kind in KINDS
        for language in LANGUAGES
        if (some := [one for one in judged if (one.question.kind, one.question.language) == (kind, language)])
    ]


def count_of(judged: Sequence[Judged]) -> Count:
    return Count(
        n=len(judged),
        right=sum(one.verdict.right for one in judged),
        right_unhedged=sum(map(_right_unhedged, judged)),
        invented=sum(_invents(one) for one in judged),
        by_source=dict(Counter(one.given.source or "none" for one in judged).most_common()),
    )


class FigureBound(Struct, frozen=True, kw_only=True):
    name: str
    value: float

    def missed(self, figures: Figures) -> str | None:
        """Return in one line why the figures do not meet it; None if they do."""
        measured = getattr(figures, self.name)
        if measured is None:
            return f"{self.name} was not measured, and {self._sign} {self.value:g} is required"
        met = measured <= self.value if self.name in _AT_MOST else measured >= self.value
        return None if met else f"{self.name} is {measured:.3f}, and {self._sign} {self.value:g} is required"

    @property
    def _sign(self) -> str:
        return "≤" if self.name in _AT_MOST else "≥"


def parse_bound(text: str) -> FigureBound:
    """Return the bound in a text such as `en_right=0.9`. Raises `SettingsError`."""
    name, _, value = text.partition("=")
    if name not in Figures.__struct_fields__:
        raise SettingsError(
            f"--require {text}: there is no figure {name!r}; choose {', '.join(Figures.__struct_fields__)}"
        )
    with suppress(ValueError):
        if 0 <= (share := float(value)) <= 1:
            return FigureBound(name=name, value=share)
    raise SettingsError(f"--require {text}: write a share from 0 to 1 after it: {name}=0.9")


def _asked(one: Judged, language: Language) -> bool:
    return one.question.answerable and one.question.language == language


def _hedged(one: Judged) -> bool:
    return one.given.source == "quote"


def _right_unhedged(one: Judged) -> bool:
    """To a question without an answer an entry that is offered with a doubt is the admission, no hedge."""
    return one.verdict.right and not (one.question.answerable and _hedged(one))


def _invents(one: Judged) -> bool:
    return bool(one.verdict.invented)


def _right(judged: Sequence[Judged], of: Callable[[Judged], bool]) -> float | None:
    return _share(judged, of, lambda one: one.verdict.right)


def _share(judged: Sequence[Judged], of: Callable[[Judged], bool], counts: Callable[[Judged], bool]) -> float | None:
    some = [one for one in judged if of(one)]
    return sum(map(counts, some)) / len(some) if some else None
