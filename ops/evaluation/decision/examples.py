"""Examples for the decision: what is measured of a question and an entry, and whether the entry answers it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from ops.evaluation.decision.corpora import Corpus, rounds_of, told
from ops.evaluation.judging.questions import Question, turns_of
from ops.evaluation.judging.split import Split
from shared.faq import FaqEntry, FaqIndex, Language
from shared.faq.vectors import Embed

# "answerable" and the near misses are as written; "there" is a near miss with the sentence that answers it, "elsewhere"
# one with another such sentence, "also" a wording of a dev entry that was kept out of the index.
Kind = Literal["answerable", "near", "unanswerable", "there", "elsewhere", "also"]
_FOLDS: Final = 4
_HITS: Final = 3
_NOT_ASKED: Final = frozenset({"small_talk", "double"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A question and one of the entries found for it, at the place `rank`; `answers`: whether that answers it."""

    corpus: str
    split: Split
    language: Language
    question: str
    kind: Kind
    rank: int
    answers: bool
    measured: dict[str, float]


def examples_of(corpus: Corpus, embed: Embed) -> Iterator[Example]:
    """Return the examples of a corpus. A question without a hit gives no example."""
    asking = _ExampleMaker(corpus.name, FaqIndex(corpus.entries, embed))
    for question in corpus.questions:
        if question.kind not in _NOT_ASKED:
            kind: Kind = "answerable" if question.answerable else "near" if question.near else "unanswerable"
            yield from asking.examples(question, question.entries, kind)
    for number, asked in enumerate(rounds_of(corpus.questions)):
        yield from _two_sided(corpus, asked, embed, number)
    if corpus.name == "demo":
        for fold in range(_FOLDS):
            yield from _also(corpus, embed, fold)


@dataclass(frozen=True, slots=True)
class _ExampleMaker:
    """Asks an index."""

    corpus: str
    index: FaqIndex

    def examples(self, question: Question, answers: Sequence[str], kind: Kind) -> Iterator[Example]:
        vector = self.index.vector_of(question.question, question.language)
        turns = turns_of(question, self.index.entries, name=question.id, asked_unix_ms=0)
        hits = self.index.search(question.question, k=_HITS, language=question.language, previous=turns, vector=vector)
        measured = self.index.measured(question.question, hits, vector=vector, previous=turns)
        for rank, (hit, row) in enumerate(zip(hits, measured, strict=True)):
            yield Example(
                corpus=self.corpus,
                split=question.split,
                language=question.language,
                question=question.id,
                kind=kind,
                rank=rank,
                answers=hit.entry.id in answers,
                measured=row,
            )


def _two_sided(corpus: Corpus, asked: Sequence[Question], embed: Embed, number: int) -> Iterator[Example]:
    """Return near misses with the sentence that answers them, some with another such sentence, and some questions that
    are still answered by an entry with one more sentence."""
    sentences = {(question.near or "", question.language): question.tell or "" for question in asked}
    asking = _ExampleMaker(corpus.name, FaqIndex(told(corpus.entries, sentences), embed))
    for question in asked:
        yield from asking.examples(question, [question.near or ""], "there")
    own = {question.id for question in asked}
    for place, question in enumerate(corpus.questions):
        if place % _FOLDS != number % _FOLDS or question.id in own or question.split == "held_out":
            continue
        if question.near is not None and (question.near, question.language) in sentences:
            yield from asking.examples(question, (), "elsewhere")
        elif any((entry, question.language) in sentences for entry in question.entries):
            yield from asking.examples(question, question.entries, "answerable")


def _also(corpus: Corpus, embed: Embed, fold: int) -> Iterator[Example]:
    """Return a fold of the dev entries' further wordings as questions, to an index without them."""
    dev = {entry for question in corpus.questions if question.split == "dev" for entry in question.entries}
    kept: list[FaqEntry] = []
    asked: list[Question] = []
    for entry in corpus.entries:
        out = entry.also[fold::_FOLDS] if entry.id in dev else ()
        kept.append(msgspec.structs.replace(entry, also=tuple(also for also in entry.also if also not in out)))
        asked += [
            Question(
                id=f"also-{entry.id}-{entry.language}-{fold}-{number}",
                language=entry.language,
                kind="paraphrase",
                split="dev",
                question=also,
                entries=(entry.id,),
            )
            for number, also in enumerate(out)
        ]
    asking = _ExampleMaker(corpus.name, FaqIndex(kept, embed))
    for question in asked:
        yield from asking.examples(question, question.entries, "also")
