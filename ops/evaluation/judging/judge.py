"""Judge whether an answer is right, and say why not. Pure.

Right is an answer that holds every fact its question asks for and none that is forbidden, and names no figure that
neither its FAQ entries nor the conversation bear out. Where the FAQ has no answer, right is to say so or to offer a
person.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ops.evaluation.judging.figures import figures, foreign
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.spelling import normal, occurrences, says
from shared.facts import Known
from shared.wire.outcome import BY_MODEL, Grounding, Source

HUMAN: Final = "contact-person"
"""The FAQ entry that is an offer of a person."""

_HONEST: Final[frozenset[Source]] = frozenset({"quote", "clarify", "unsure", "handoff"})
_ADMITS: Final = re.compile(
    r"\b(?:don't|do not|can't|cannot|could not|couldn't) (?:know|have|find|answer|help|say|tell|share|do that)\b"
    r"|\bnot (?:sure|able|certain)\b|\bno (?:information|details)\b|\bunable to\b"
    r"|\b(?:help pages|faq) (?:say|says|do not)\b"
    r"|\b(?:connect|put) you\b|\b(?:talk|speak) to (?:a|an|one)\b|\b(?:human|agent|colleague|person)\b"
    r"|不清楚|不知道|不确定|没有相关|没有提到|没有这方面|无法|人工|真人"
)
# Right before a forbidden fact, in its sentence: "it is 30 days, not 90 days" forbids nothing.
_DENIED: Final = re.compile(
    r"(?:\bnot|n't|\bno|\bnever|\bnor|\binstead of|\brather than|不是|并非|而非|没有|不能|不会|无法)"
    r"[^.!?。！？;；]{0,24}$"
)


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A system's answer; `error` is the code of a refusal or the reason of an answer that is not whole."""

    source: Source | None = None
    text: str = ""
    grounding: tuple[Grounding, ...] = ()
    error: str | None = None

    @property
    def by_model(self) -> bool:
        return self.source in BY_MODEL


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`why` says what is wrong; empty if the answer is right. `invented` are figures without a source."""

    right: bool
    why: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()


def judge(question: Question, given: Given) -> Verdict:
    """Return the verdict on one answer."""
    if given.error is not None or given.source is None:
        return Verdict(right=False, why=(f"no answer: {given.error}",))
    invented = _invented(question, given) if given.by_model else ()
    answer = normal(given.text)
    why = [f"invented: {figure}" for figure in invented]
    why += [f"forbidden: {spelling}" for spelling in question.must_not if _claims(answer, normal(spelling))]
    if question.answerable:
        why += _missing(question, given, answer) if question.must else _elsewhere(question, given)
    elif question.kind == "small_talk":
        why += _no_courtesy(given)
    else:
        why += _no_admission(question, given, answer)
    return Verdict(right=not why, why=tuple(why), invented=tuple(invented))


def _invented(question: Question, given: Given) -> tuple[str, ...]:
    heard = [text for turn in question.history for text in (turn.user, turn.assistant)]
    said = [text for entry in given.grounding for text in (entry.question, entry.answer)]
    sources = [question.question, *heard, *said]
    found = [figure.shown for figure in foreign(given.text, sources)]
    # By the guard's reading too, which knows more sorts of facts; it alone never acquits.
    known = Known()
    known.add(sources)
    for fact in known.foreign(given.text):
        shown = normal(given.text[fact.start : fact.stop])
        if not any(shown in other or other in shown for other in found):
            found.append(shown)
    return tuple(dict.fromkeys(found))


def _missing(question: Question, given: Given, answer: str) -> list[str]:
    if given.source == "handoff" and question.entries[:1] == (HUMAN,):
        return []
    return [
        f"missing: {' / '.join(fact)}"
        for fact in question.must
        if not any(says(answer, normal(spelling)) for spelling in fact)
    ]


def _elsewhere(question: Question, given: Given) -> list[str]:
    """Return what is wrong with an answer that is right by its entry: that must be one of the question's."""
    first = given.grounding[0].id if given.grounding else "no entry"
    return [] if first in question.entries else [f"from {first}, not from {' / '.join(question.entries)}"]


def _no_courtesy(given: Given) -> list[str]:
    if given.source == "courtesy" or given.source in _HONEST:
        return []
    if given.by_model and not figures(given.text):
        return []
    return ["small talk was answered with facts"]


def _no_admission(question: Question, given: Given, answer: str) -> list[str]:
    if given.source in _HONEST or (given.source == "courtesy" and question.kind == "astray"):
        return []
    quotes_offer = given.source == "faq" and {entry.id for entry in given.grounding} == {HUMAN}
    if quotes_offer or (given.by_model and _ADMITS.search(answer)):
        return []
    return ["neither says that it does not know nor offers a person"]


def _claims(answer: str, spelling: str) -> bool:
    return any(not _DENIED.search(answer[:at]) for at in occurrences(answer, spelling))


def retrieved(question: Question, found: Sequence[str], k: int) -> bool:
    """Return whether the best `k` entries found, by their ids, are what the question needs: for a `double` all its
    entries if `k` allows that, otherwise one of its entries."""
    best = found[:k]
    if question.kind == "double" and k >= len(question.entries):
        return all(entry in best for entry in question.entries)
    return any(entry in best for entry in question.entries)
