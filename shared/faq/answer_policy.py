"""Decide how a question is answered, given the FAQ entries that were found for it. Pure.

    small talk                                     → one fixed line
    a sure match, in a language of the model       → the model, from that entry
    a sure match for each of several questions     → the entries themselves, one after the other; or the model
    a sure match, in another language              → the entry itself
    a possible match                               → a quote: the entry under its own question, and the offer of a
                                                     person
    two or three that fit a bare topic equally     → one question: which of them is meant
    no match                                       → "I don't know", and what the customer can do

Without a matching entry a model invents an answer, a small model more often, so the model is not asked then. Only
measures of question and entry decide whether an entry matches: "ignore your instructions" is searched like any other
text. Only an answer claims something: a quote has no "Yes", and does not say that it answers the question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from shared.faq import FaqEntry, FaqHit, Language, detect_language
from shared.faq.decision.sureness import FITTED, Thresholds, sureness_of
from shared.faq.fallback import Fallback
from shared.faq.small_talk import IN_NEED, Kind, courtesy, small_talk, without_courtesies
from shared.faq.speech.clarify import clarifying_text, is_topic
from shared.faq.speech.words import (
    OFFER,
    WaysOn,
    answer_text,
    can_answer,
    claimed,
    quote_text,
    unknown_text,
)
from shared.faq.terms import seems_foreign, wording
from shared.faq.words.fold import plain
from shared.settings.answers import AnswerSettings
from shared.wire.outcome import Grounding

# Entries below this share of the best score are left out of the prompt: they would mislead the model.
_NEAR: Final = 0.8
# A second entry is quoted if the logit of its sureness is so little below the best one's. On the dev questions this
# keeps 41 of 50 that help and 51 that do not, half of the best one's score 43 and 107.
_NEAR_IN_DOUBT: Final = 1.5
_NEAR_OF_SEVERAL: Final = 0.5
# The search must return at least two hits, since the lead over the second one counts.
SHOWN: Final = 2
OFFERED: Final = 3
"""The most entries that a customer is asked to choose of."""
# Entries fit a bare topic equally well from this share of the best score on, if that is at least `_ASK_FROM`. Of
# whole questions two are quoted, since the first is right too often to ask: docs/answers.md has the figures.
_EQUAL: Final = 0.8
_ASK_FROM: Final = 0.3
_NONE: Final = WaysOn()


@dataclass(frozen=True, slots=True)
class Ground:
    """The model answers from these entries, best first. They may be empty with `policy="model"`."""

    entries: tuple[FaqEntry, ...]

    @property
    def grounding(self) -> tuple[Grounding, ...]:
        return tuple(entry.as_grounding() for entry in self.entries)


@dataclass(frozen=True, slots=True)
class DirectAnswer:
    """The entries answer the question themselves. `language` is the question's."""

    entries: tuple[FaqEntry, ...]
    language: Language


@dataclass(frozen=True, slots=True)
class Quote:
    """The entries are quoted: they may not answer the question, whose language is `language`."""

    hits: tuple[FaqHit, ...]
    language: Language


@dataclass(frozen=True, slots=True)
class Clarify:
    """The customer is asked which of these entries is meant. `language` is the question's."""

    entries: tuple[FaqEntry, ...]
    language: Language


@dataclass(frozen=True, slots=True)
class Courtesy:
    """The answer to small talk."""

    kind: Kind
    language: Language


@dataclass(frozen=True, slots=True)
class Unknown:
    """No entry matches. `foreign`: the question seems to be in a language that the FAQ does not have."""

    language: Language
    foreign: bool = False


Instead = DirectAnswer | Quote | Clarify | Courtesy | Unknown
"""What is decided where no model is asked."""
Decision = Ground | Instead


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPolicy:
    """The configured policy.

    Attributes:
        grounded: False if the model answers every question, with or without an entry.
        thresholds: thresholds of the decision.
        languages: the model's languages, from its manifest; None for any.
        most: the most entries that go into a prompt.
        ways_on: what a customer can do whose question has no answer.
    """

    grounded: bool = True
    thresholds: Thresholds = FITTED
    languages: tuple[Language, ...] | None = None
    most: int = 2
    ways_on: WaysOn = _NONE

    @classmethod
    def of(cls, settings: AnswerSettings, *, languages: tuple[Language, ...] | None, most: int, handoff: bool) -> Self:
        """Return the policy of these settings.

        Args:
            settings: the answer settings.
            languages: the model's languages, from its manifest.
            most: the most entries that go into a prompt.
            handoff: whether a person can be asked for.
        """
        confident = settings.confident_score
        thresholds = Thresholds(
            confident=FITTED.confident if confident is None else confident, weak=settings.weak_score
        )
        return cls(
            grounded=settings.policy == "grounded",
            thresholds=thresholds,
            languages=languages,
            most=most,
            ways_on=WaysOn(handoff, contact_of(settings)),
        )

    def decide(
        self,
        question: str,
        hits: Sequence[FaqHit],
        parts: Sequence[Sequence[FaqHit]] = (),
        *,
        may_ask: bool = True,
        language: Language | None = None,
    ) -> Decision:
        """Decide how the question is answered.

        Args:
            question: the customer's message.
            hits: the entries found for the whole message, best first.
            parts: the entries found for each of its questions, if it has several. The FAQ answers these one after the
                other, since a small model would answer only one of them.
            may_ask: the customer may be asked which entry is meant: not twice in a row.
            language: the reply's language, by default the question's.
        """
        if not self.grounded:
            return Ground(tuple(hit.entry for hit in near(hits, self.most)))
        question = plain(question)
        language, kind = language or detect_language(question), small_talk(question)
        if kind is not None:
            return Courtesy(kind, language)
        of_each = _of_each_part(parts, self.thresholds.confident)[: self.most]
        if len(of_each) > 1:
            return DirectAnswer(tuple(of_each), language)
        return self._of_hits(question, hits, language, may_ask=may_ask, several=bool(parts))

    def _of_hits(
        self, question: str, hits: Sequence[FaqHit], language: Language, *, may_ask: bool, several: bool
    ) -> Decision:
        """Decide how one question is answered, or several that do not all have a sure entry."""
        if not hits or not self._is_related(hits[0]):
            return Unknown(language, foreign=seems_foreign(question))
        if sureness_of(hits) < self.thresholds.confident or not can_answer(hits[0]):
            if may_ask and not several and is_topic(without_courtesies(question)) and (equal := fit_equally(hits)):
                return Clarify(equal, language)
            return Quote(quoted(hits, several=several), language)
        found = tuple(claimed(hit) for hit in near(hits, self.most))
        spoken = {language, *(entry.language for entry in found)}
        if found and (self.languages is None or spoken <= set(self.languages)):
            return Ground(found)
        return DirectAnswer((claimed(hits[0]),), language)

    def _is_related(self, hit: FaqHit) -> bool:
        weak = self.thresholds.weak
        return hit.related if weak is None else hit.score >= weak

    def reply(self, decision: Instead) -> Fallback:
        """Return the answer, where no model writes it. A person is offered where one can be asked for."""
        match decision:
            case Courtesy(kind, language):
                offer = self.ways_on.offer(language) if kind in IN_NEED else []
                text = "\n\n".join([courtesy(kind, language), *offer])
                return Fallback(source="courtesy", text=text, language=language)
            case Unknown(language, foreign):
                text = unknown_text(language, self.ways_on, foreign=foreign)
                return Fallback(source="unsure", text=text, language=language)
            case Quote(hits, language):
                return Fallback(
                    source="quote",
                    text=quote_text(hits, language, self.ways_on),
                    language=language,
                    grounding=tuple(hit.entry.as_grounding() for hit in hits),
                )
            case Clarify(entries, language):
                return Fallback(
                    source="clarify",
                    text=clarifying_text([entry.question for entry in entries], language),
                    language=language,
                    grounding=tuple(entry.as_grounding() for entry in entries),
                )
            case DirectAnswer(entries, language):
                return Fallback(
                    source="faq",
                    text=answer_text(entries, language),
                    language=entries[0].language,
                    grounding=tuple(entry.as_grounding() for entry in entries),
                )


def contact_of(settings: AnswerSettings) -> dict[Language, str]:
    """Return the shop's own line under "I don't know", by language."""
    lines: dict[Language, str | None] = {"en": settings.contact_en, "zh": settings.contact_zh}
    return {language: line for language, line in lines.items() if line}


def offers_person(answer: str) -> bool:
    """Return whether an answer offers a person."""
    return any(offer in answer for offer in OFFER.values())


def near(hits: Sequence[FaqHit], most: int, *, share: float = _NEAR) -> list[FaqHit]:
    """Return the best hit, and those that fit nearly as well: to that share of its score."""
    return [hit for hit in hits[:most] if hit.score >= share * hits[0].score]


def quoted(hits: Sequence[FaqHit], *, several: bool = False) -> tuple[FaqHit, ...]:
    """Return the hits that are quoted in doubt: the best one, and a second that is about as sure. If the message asks
    several questions, the second may be that of another one."""
    if several:
        return tuple(near(hits, SHOWN, share=_NEAR_OF_SEVERAL))
    return tuple(hit for hit in hits[:SHOWN] if hits[0].logit - hit.logit <= _NEAR_IN_DOUBT)


def fit_equally(hits: Sequence[FaqHit]) -> tuple[FaqEntry, ...]:
    """Return the best entries if two or three fit equally well: none of them can be shown first with reason."""
    if len(hits) < SHOWN or hits[0].score < _ASK_FROM:
        return ()
    equal = [hit.entry for hit in near(hits, OFFERED, share=_EQUAL)]
    if len({wording(entry.question) for entry in equal[:SHOWN]}) < SHOWN:
        return ()
    return tuple({wording(entry.question): entry for entry in reversed(equal)}.values())[::-1]


def _of_each_part(parts: Sequence[Sequence[FaqHit]], confident: float) -> list[FaqEntry]:
    """Return the entry that answers each part, without repetition; none where a part has no sure one."""
    if not all(hits and sureness_of(hits) >= confident for hits in parts):
        return []
    return list({hits[0].entry.id: claimed(hits[0]) for hits in parts}.values())
