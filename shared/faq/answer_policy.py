"""Decide how a question is answered, given the FAQ entries that were found for it. Pure.

    small talk                                     → one fixed line
    a sure match, in a language of the model       → the model, from that entry
    a sure match for each of several questions     → the entries themselves, one after the other; or the model
    a sure match, in another language              → the entry itself
    a possible match                               → "I am not sure", the entry, other near matches, and the offer of
                                                     a person
    no match                                       → "I don't know", and the offer of a person

Without a matching entry a model invents an answer, a small model more often, so the model is not asked then. Only the
scores decide whether an entry matches: "ignore your instructions" is searched like any other text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from shared.faq import FaqEntry, FaqHit, Language, detect_language
from shared.faq.fallback import Fallback
from shared.faq.small_talk import IN_NEED, Kind, courtesy, small_talk
from shared.faq.terms import seems_foreign
from shared.faq.words.fold import plain
from shared.settings.answers import AnswerSettings
from shared.wire.outcome import Grounding


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the search. The best entry is a sure match if its sureness (`sureness_of`) is at least `confident`.
    It is a possible match if its score, 0 to 1, is at least `weak`."""

    confident: float
    weak: float


# Fitted on the dev questions of ops/evaluation (`replyline eval --fit`), the weak one on wordings of dev entries that
# were kept out of the index: docs/evaluation.md.
FITTED: Final = Thresholds(confident=0.7, weak=0.15)
# If two entries match about equally well, each is wrong for half of the questions. So the lead of the best entry over
# the second is added to its score, up to this limit: a larger lead makes it no clearer.
_CLEAR_LEAD: Final = 0.2
# Entries below this share of the best score are left out of the prompt: they would mislead the model.
_NEAR: Final = 0.8
# The same share for possible matches. It is lower, since a person reads these and sees which one fits.
_NEAR_IN_DOUBT: Final = 0.5
# The search must return at least two hits, since the lead over the second one counts.
SHOWN: Final = 2


@dataclass(frozen=True, slots=True)
class Ground:
    """The model answers from these entries, best first. They may be empty with `policy="model"`."""

    entries: tuple[FaqEntry, ...]

    @property
    def grounding(self) -> tuple[Grounding, ...]:
        return tuple(entry.as_grounding() for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Quote:
    """The entries' own text is the answer. `language` is the question's."""

    entries: tuple[FaqEntry, ...]
    language: Language


@dataclass(frozen=True, slots=True)
class Courtesy:
    """The answer to small talk."""

    kind: Kind
    language: Language


@dataclass(frozen=True, slots=True)
class Unsure:
    """No entry is a sure match; `entries` are the possible ones. `foreign`: no entry was found, and the question seems
    to be in a language that the FAQ does not have."""

    language: Language
    entries: tuple[FaqEntry, ...] = ()
    foreign: bool = False


Decision = Ground | Quote | Courtesy | Unsure


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPolicy:
    """The configured policy.

    Attributes:
        grounded: False if the model answers every question, with or without an entry.
        thresholds: thresholds of the search.
        languages: the model's languages, from its manifest.
        most: the most entries that go into a prompt.
        handoff: a person can be asked for, and is offered to customers whose question has no answer.
    """

    grounded: bool = True
    thresholds: Thresholds = FITTED
    languages: tuple[Language, ...] | None = None
    most: int = 2
    handoff: bool = False

    @classmethod
    def of(cls, settings: AnswerSettings, *, languages: tuple[Language, ...] | None, most: int, handoff: bool) -> Self:
        """Return the policy of these settings.

        Args:
            settings: the answer settings.
            languages: the model's languages, from its manifest.
            most: the most entries that go into a prompt.
            handoff: whether a person can be asked for.
        """
        confident, weak = settings.confident_score, settings.weak_score
        thresholds = Thresholds(
            confident=FITTED.confident if confident is None else confident,
            weak=FITTED.weak if weak is None else weak,
        )
        return cls(
            grounded=settings.policy == "grounded",
            thresholds=thresholds,
            languages=languages,
            most=most,
            handoff=handoff,
        )

    def decide(self, question: str, hits: Sequence[FaqHit], parts: Sequence[Sequence[FaqHit]] = ()) -> Decision:
        """Decide how the question is answered.

        Args:
            question: the customer's message.
            hits: the entries found for the whole message, best first.
            parts: the entries found for each of its questions, if it has several. The FAQ answers these one after the
                other, since a small model would answer only one of them.
        """
        if not self.grounded:
            return Ground(tuple(near(hits, self.most)))
        question = plain(question)
        thresholds, language, kind = self.thresholds, detect_language(question), small_talk(question)
        if kind is not None:
            return Courtesy(kind, language)
        several = _of_each_part(parts, thresholds.confident)[: self.most]
        if len(several) > 1:
            return Quote(tuple(several), language)
        if sureness_of(hits) < thresholds.confident:
            shown = offered(hits) if hits and hits[0].score >= thresholds.weak else ()
            return Unsure(language, shown, foreign=not shown and seems_foreign(question))
        found = near(hits, self.most)
        spoken = {language, *(entry.language for entry in found)}
        if found and (self.languages is None or spoken <= set(self.languages)):
            return Ground(tuple(found))
        return Quote((hits[0].entry,), language)

    def reply(self, decision: Quote | Courtesy | Unsure) -> Fallback:
        """Return the answer, where no model writes it. A person is offered where one can be asked for."""
        match decision:
            case Courtesy(kind, language):
                offer = [_OFFER[language]] if self.handoff and kind in IN_NEED else []
                return Fallback(
                    source="courtesy", text="\n\n".join([courtesy(kind, language), *offer]), language=language
                )
            case Unsure(language, entries, foreign):
                perhaps = "".join(
                    (_NEXT if place else _PERHAPS)[language].format(
                        found=_FOUND[language].format(question=entry.question, answer=entry.answer)
                    )
                    for place, entry in enumerate(entries)
                )
                refusal = perhaps or (_FOREIGN if foreign else _UNSURE[language])
                return Fallback(
                    source="unsure",
                    text="\n\n".join([refusal, *([_OFFER[language]] if self.handoff else [])]),
                    language=language,
                    grounding=tuple(entry.as_grounding() for entry in entries),
                )
            case Quote(entries, language):
                foreign = any(entry.language != language for entry in entries)
                answers = [entry.answer for entry in entries]
                return Fallback(
                    source="faq",
                    text="\n\n".join([_ELSEWHERE[language], *answers] if foreign else answers),
                    language=entries[0].language,
                    grounding=tuple(entry.as_grounding() for entry in entries),
                )


def offers_person(answer: str) -> bool:
    """Return whether an answer offers a person."""
    return any(offer in answer for offer in _OFFER.values())


def sureness_of(hits: Sequence[FaqHit]) -> float:
    """Return how surely the best of `hits`, which stand best first, is the right entry: its score, and its lead as far
    as that counts. 0 without a hit; `hits` are two at least where two entries fit."""
    if not hits:
        return 0.0
    best, second = hits[0].score, hits[1].score if len(hits) > 1 else 0.0
    return best + min(best - second, _CLEAR_LEAD)


def near(hits: Sequence[FaqHit], most: int, *, share: float = _NEAR) -> list[FaqEntry]:
    """Return the best hit's entry, and those that fit nearly as well: to that share of its score."""
    return [hit.entry for hit in hits[:most] if hit.score >= share * hits[0].score]


def offered(hits: Sequence[FaqHit]) -> tuple[FaqEntry, ...]:
    """Return the entries to show where the best hit only may fit."""
    return tuple(near(hits, SHOWN, share=_NEAR_IN_DOUBT))


def _of_each_part(parts: Sequence[Sequence[FaqHit]], confident: float) -> list[FaqEntry]:
    """Return the entry that answers each part, without repetition; none where a part has no sure one."""
    if not all(hits and sureness_of(hits) >= confident for hits in parts):
        return []
    return list({hits[0].entry.id: hits[0].entry for hits in parts}.values())


# --- in words

_UNSURE: Final[dict[Language, str]] = {
    "en": "I don't know that: our help pages say nothing about it.",
    "zh": "这个问题我不清楚，帮助中心没有相关内容。",
}
_FOREIGN: Final = "I don't know that. I understand English and Chinese only: please ask me in one of them."
_PERHAPS: Final[dict[Language, str]] = {
    "en": "I'm not sure that I know this. Closest in our help pages is {found}",
    "zh": "我不确定能否回答这个问题。帮助中心里最接近的是{found}",
}
_FOUND: Final[dict[Language, str]] = {"en": "“{question}”: {answer}", "zh": "“{question}”：{answer}"}
_NEXT: Final[dict[Language, str]] = {"en": "\n\nOr {found}", "zh": "\n\n或者{found}"}
_OFFER: Final[dict[Language, str]] = {
    "en": "A person can help you: just say that you would like to talk to one.",
    "zh": "人工客服可以帮您：直接说“转人工客服”即可。",
}
_ELSEWHERE: Final[dict[Language, str]] = {
    "en": "I have this in another language only:",
    "zh": "这方面的内容目前只有其他语言的版本：",
}
