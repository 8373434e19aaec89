"""Measure the decision by itself on the held-out halves of all corpora: the FAQ decides, and no model is asked."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from ops.evaluation.decision.corpora import Corpus, rounds_of, told
from ops.evaluation.judging.questions import Question, turns_of
from ops.measure.intervals import wilson
from shared.faq import FaqEntry, FaqIndex, Language
from shared.faq.answer_policy import SHOWN, AnswerPolicy, Decision, DirectAnswer, Ground, Quote, Unknown
from shared.faq.entries import LANGUAGES
from shared.faq.vectors import Embed

Decide = Callable[[Question], Decision]
_NOT_COUNTED = frozenset({"small_talk", "double"})


def decide_by(entries: Sequence[FaqEntry], policy: AnswerPolicy, embed: Embed | None) -> Decide:
    """Return the function that decides a question to an FAQ, with the turns before it."""
    index = FaqIndex(entries, embed)

    def decide(question: Question) -> Decision:
        found = index.find(
            question.question,
            k=SHOWN,
            previous=turns_of(question, entries, name=question.id, asked_unix_ms=0),
            vector=index.vector_of(question.question, question.language),
        )
        return policy.decide(question.question, found.hits, found.parts)

    return decide


def claimed_of(decision: Decision) -> str | None:
    """Return the id of the entry that is claimed to answer; None if no entry is."""
    return decision.entries[0].id if isinstance(decision, Ground | DirectAnswer) and decision.entries else None


def first_of(decision: Decision) -> str | None:
    """Return the id of the entry that is shown first, as an answer or a quote."""
    return decision.hits[0].entry.id if isinstance(decision, Quote) else claimed_of(decision)


def claimed_when_there(
    questions: Sequence[Question], entries: Sequence[FaqEntry], policy: AnswerPolicy, embed: Embed | None
) -> list[bool]:
    """Return of each near miss, put to an FAQ with the sentence that answers it, whether its entry is claimed."""
    claimed: list[bool] = []
    for asked in rounds_of(questions):
        sentences = {(question.near or "", question.language): question.tell or "" for question in asked}
        decide = decide_by(told(entries, sentences), policy, embed)
        claimed += [claimed_of(decide(question)) == question.near for question in asked]
    return claimed


def measure(corpora: Sequence[Corpus], policy: AnswerPolicy, embed: Embed | None, console: Console) -> None:
    """Print the shares of the held-out halves, with their 95 % intervals: of the demo's shop, and of all others."""
    for name, some in (
        ("demo", [corpus for corpus in corpora if corpus.name == "demo"]),
        ("invented shops", [corpus for corpus in corpora if corpus.name != "demo"]),
    ):
        for language in LANGUAGES:
            for share, holds in _shares(some, policy, embed, language):
                low, high = wilson(sum(holds), len(holds))
                value = f"{sum(holds) / len(holds):.2f} [{low:.2f}, {high:.2f}]" if holds else "–"
                console.print(f"{name} {language} {share}: {value} of {len(holds)}", highlight=False)


def _shares(
    corpora: Sequence[Corpus], policy: AnswerPolicy, embed: Embed | None, language: Language
) -> Iterator[tuple[str, list[bool]]]:
    decided: list[tuple[Question, Decision]] = []
    there: list[bool] = []
    followed: list[bool] = []
    for corpus in corpora:
        held_out = [
            question
            for question in corpus.questions
            if (question.split, question.language) == ("held_out", language) and question.kind not in _NOT_COUNTED
        ]
        if held_out:
            decide = decide_by(corpus.entries, policy, embed)
            decided += [(question, decide(question)) for question in held_out]
            there += claimed_when_there(held_out, corpus.entries, policy, embed)
            followed += [
                first_of(decide(question)) in question.entries
                for question in (*held_out, *corpus.follow_ups)
                if (question.split, question.language, question.kind) == ("held_out", language, "follow_up")
            ]
    answerable = [(question, decision) for question, decision in decided if question.answerable]
    yield "right entry first", [first_of(decision) in question.entries for question, decision in answerable]
    yield "right and claimed", [claimed_of(decision) in question.entries for question, decision in answerable]
    near = [decision for question, decision in decided if question.near is not None]
    yield "misled: near misses claimed", [claimed_of(decision) is not None for decision in near]
    plain = [decision for question, decision in decided if not question.answerable and question.near is None]
    yield "other unanswerable claimed", [claimed_of(decision) is not None for decision in plain]
    yield "other unanswerable: don't know", [isinstance(decision, Unknown) for decision in plain]
    yield "claimed when the sentence is there", there
    yield "follow-ups: right entry first", followed
