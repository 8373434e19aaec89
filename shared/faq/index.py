"""The FAQ's index: the entries that answer a message best, by its terms and, where there are some, by embeddings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.conversation.turn import Turn
from shared.faq.decision.features import QuestionTerms
from shared.faq.decision.reading import Readings
from shared.faq.decision.relation import least_relation, off_topic, relation_of
from shared.faq.entries import LANGUAGES, PACKAGED_PATH, FaqEntry, FaqHit, read_entries
from shared.faq.follow_up import BORNE_WEIGHT, Lean, lean_of, scores_of, with_previous
from shared.faq.parts import parts_of
from shared.faq.ranking import Ranking
from shared.faq.small_talk import without_courtesies
from shared.faq.speech.clarify import is_topic
from shared.faq.terms import TermExtractor, detect_language, wording
from shared.faq.vectors import Embed, EntryVectors
from shared.faq.words.fold import Plain, plain
from shared.wire.messages import Language

# One of several questions in a message counts if an entry covers at least this share of it.
PART_SCORE: Final = 0.3
# A message is treated as one question if one entry has at least this score for all of it.
WHOLE_SCORE: Final = 0.7
# By terms alone nothing is quoted below this score. A bare topic ("shipping") and a question that leans on the one
# before are quoted from it on: no question that is off the topic is like them.
_LEAST_SCORE: Final = 0.15
# A hit's sureness depends on its lead over the second.
_LED: Final = 2
# A score is the share + this weight times the similarity. Terms lead. Not reciprocal rank fusion, for which a narrow
# first place is as good as a clear one: on the development questions it was worse in Chinese than terms alone.
SIMILARITY_WEIGHT: Final = 0.7


@dataclass(frozen=True, slots=True)
class Found:
    """`hits` are best first, no score above the one before. `parts` are those of each question where a message asks
    several, in their order; else there are none."""

    hits: tuple[FaqHit, ...] = ()
    parts: tuple[tuple[FaqHit, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Question:
    """A question, the weights of its terms, and the score of each entry `[entries]` by these."""

    text: str
    weights: Mapping[str, float]
    shares: NDArray[np.float64]

    def leans(self, borne: int | None) -> bool:
        """Return whether it leans on the question before."""
        score = min(float(self.shares.max()), 1.0)
        return lean_of(self.text, self.weights, score, borne=borne is not None) is not Lean.NOT


@dataclass(frozen=True, slots=True)
class _Before:
    """The talk before: the terms of the question, and those of the entries that answered it."""

    question: Mapping[str, float]
    grounding: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Talk:
    """What a question may lean on. `before` is there if anything was said before, and called only for a question that
    leans; `borne` is the place of the entry that answered the last question and may answer this one too."""

    before: Callable[[], _Before] | None = None
    borne: int | None = None


class FaqIndex:
    """Searches the FAQ. To be used by one thread at a time (its stemmer is not safe for more)."""

    def __init__(self, entries: Sequence[FaqEntry], embed: Embed | None = None) -> None:
        self._terms_of = TermExtractor()
        self._embed = embed
        self.entries = tuple(entries)
        self._rankings: dict[Language, Ranking] = {}
        self._readings: dict[Language, Readings] = {}
        self._vectors: dict[Language, EntryVectors] = {}
        self._least: dict[Language, Mapping[bool, float]] = {}
        self.unasked: list[str] = []
        """The ids of entries that no question finds: theirs have no word in English or Chinese."""
        for language in LANGUAGES:
            own = [entry for entry in entries if entry.language == language]
            ranking = Ranking.of(own, self._terms_of)
            self.unasked += [entry.id for entry in own] if ranking is None else ranking.unasked
            if ranking is not None:
                self._rankings[language] = ranking
                vectors = None if embed is None else EntryVectors.of(own, embed)
                if vectors is not None:
                    self._vectors[language] = vectors
                self._readings[language] = Readings(ranking, self._terms_of, vectors, embed)
                self._least[language] = self._least_relations(language, embed if vectors is not None else None)

    @classmethod
    def load(cls, path: Path | None = None, *, embed: Embed | None = None) -> Self:
        """Index the FAQ file at `path`, or the packaged one. Raises SettingsError if the file is bad."""
        return cls(read_entries(PACKAGED_PATH if path is None else path), embed)

    def search(
        self,
        text: str,
        *,
        k: int = 3,
        language: Language | None = None,
        previous: Sequence[Turn] = (),
        vector: NDArray[np.float32] | None = None,
    ) -> list[FaqHit]:
        """Return the at most `k` entries that match best, best first: see `find`."""
        return list(self.find(text, k=k, language=language, previous=previous, vector=vector).hits)

    def find(
        self,
        text: str,
        *,
        k: int = 3,
        language: Language | None = None,
        previous: Sequence[Turn] = (),
        vector: NDArray[np.float32] | None = None,
    ) -> Found:
        """Return the at most `k` entries that match best, and those of each question in it, in `language` (by default
        the text's own).

        A hit's score is the share, in 0..1, of what an entry that has every term of the question would score; so
        scores of long and short questions compare. Without a term in common there is no hit. A question that leans on
        the last of the `previous` turns is searched with that turn's terms in addition to its own.

        `vector` [dimensions] is the text's embedding, by the same function as the entries'. Then a score is the share
        and a part of the similarity, as `EntryVectors` scales it, together: more for what is nearer than entries are to
        each other, less for what is farther.
        """
        text = plain(text)
        language = language or detect_language(text)
        ranking = self._rankings.get(language)
        if ranking is None or k <= 0:
            return Found()
        text = self._searched(text, language)
        # "I want to talk to a person" is no topic to lean on.
        previous = [turn for turn in previous if turn.source != "handoff" or turn.by_person]
        question, reading = self._question(ranking, text), self._readings[language]
        alone = reading.asked(text, question.weights)
        borne = self._borne(alone, previous, language)
        found = self._find(ranking, question, k, self._talk(previous, borne), vector)
        asked = self._with_leant_on(question, alone, previous, borne)
        hits = reading.read(asked, found.hits, vector)
        by_itself = asked is alone and not (is_topic(text) and self._has_term_of(ranking, question))
        if hits and not self._is_related(hits[0], alone=by_itself, vector=vector):
            hits = (msgspec.structs.replace(hits[0], related=False), *hits[1:])
        parts = zip(parts_of(text), found.parts, strict=True) if found.parts else ()
        return Found(hits, tuple(reading.read(reading.asked(part), hits) for part, hits in parts))

    def vector_of(self, text: str, language: Language | None = None) -> NDArray[np.float32] | None:
        """Return the embedding of a text in `language` (by default its own), for `find`; None if it has none. May be
        called on any thread."""
        if self._embed is None:
            return None
        text = plain(text)
        language = language or detect_language(text)
        vectors = self._embed([self._searched(text, language)], language)
        return None if vectors is None else vectors[0]

    def _searched(self, text: Plain, language: Language) -> Plain:
        """Return what of a message is searched: not its courtesies, unless an entry's question has them too."""
        ranking = self._rankings.get(language)
        asked_as = {} if ranking is None else ranking.asked_as
        return text if wording(text) in asked_as else without_courtesies(text)

    def _question(self, ranking: Ranking, text: str) -> _Question:
        weights = self._terms_of.weights(text)
        return _Question(text, weights, ranking.shares(weights))

    def _has_term_of(self, ranking: Ranking, question: _Question) -> bool:
        """Return whether any entry has a term of the question: a bare word that none has may be no word at all."""
        return bool(ranking.best_of(ranking.shares(ranking.mended(question.weights)), 1))

    def _is_related(self, hit: FaqHit, *, alone: bool, vector: NDArray[np.float32] | None) -> bool:
        """Return whether the best hit's entry is related to the question. `alone`: it can be understood by itself."""
        least = self._least[hit.entry.language]
        by_vectors = vector is not None and True in least
        if hit.score < _LEAST_SCORE and not (alone and by_vectors):
            return False
        return not alone or relation_of(hit) >= least[by_vectors]

    def _least_relations(self, language: Language, embed: Embed | None) -> dict[bool, float]:
        """Return the relation from which a language's entries are quoted: without and, if there are any, with
        embeddings."""
        ranking, reading, texts = self._rankings[language], self._readings[language], off_topic()[language]

        def best(text: str, vector: NDArray[np.float32] | None) -> FaqHit | None:
            question = self._question(ranking, text)
            hits = self._find(ranking, question, _LED, _Talk(), vector).hits
            return reading.read(reading.asked(text, question.weights), hits, vector)[0] if hits else None

        leasts = {False: least_relation([best(text, None) for text in texts])}
        if embed is not None and (vectors := embed(texts, language)) is not None:
            leasts[True] = least_relation([best(text, vector) for text, vector in zip(texts, vectors, strict=True)])
        return leasts

    def measured(
        self, text: str, hits: Sequence[FaqHit], *, vector: NDArray[np.float32] | None, previous: Sequence[Turn] = ()
    ) -> list[dict[str, float]]:
        """Return what the decision measures of the hits that were found for a text, by name."""
        if not hits:
            return []
        language = hits[0].entry.language
        ranking, reading = self._rankings[language], self._readings[language]
        question = self._question(ranking, self._searched(plain(text), language))
        alone = reading.asked(question.text, question.weights)
        borne = self._borne(alone, previous, language)
        return reading.measured(self._with_leant_on(question, alone, previous, borne), hits, vector)

    def _with_leant_on(
        self, question: _Question, alone: QuestionTerms, previous: Sequence[Turn], borne: int | None
    ) -> QuestionTerms:
        """Return a question that leans on the one before, with that; any other as it is, `alone`."""
        if not previous or not question.leans(borne):
            return alone
        language: Language = "zh" if alone.chinese else "en"
        return self._readings[language].asked(f"{without_courtesies(previous[-1].user)} {question.text}")

    def _borne(self, asked: QuestionTerms, previous: Sequence[Turn], language: Language) -> int | None:
        """Return the place of the entry that answered the last question if it may answer this one too; else None."""
        if not previous or not previous[-1].grounding:
            return None
        return self._readings[language].borne(asked, previous[-1].grounding[0].id)

    def _find(
        self, ranking: Ranking, question: _Question, k: int, talk: _Talk, vector: NDArray[np.float32] | None
    ) -> Found:
        text = question.text
        exact = ranking.asked_as.get(wording(text))
        if exact is not None:
            shares = question.shares.copy()
            shares[exact] = 2.0  # above 1 for the sort alone, so that it precedes an entry that happens to reach 1
            return Found(ranking.best_of(shares, k))
        vectors = self._vectors.get(ranking.entries[0].language)
        similarities = None if vector is None or vectors is None else vectors.similarities(vector)
        whole = self._ranked(ranking, question, k, talk, similarities)
        parts = parts_of(text)
        # By terms: what is near to an entry need not be covered by it.
        covering = whole if len(parts) == 1 or similarities is None else self._ranked(ranking, question, 1, talk)
        if len(parts) == 1 or (covering and covering[0].score >= WHOLE_SCORE):
            return Found(whole)
        found = []
        for part in parts:
            found.append(self._ranked(ranking, self._question(ranking, part), k, talk))
            talk = _Talk(cache(partial(self._asked, part)))
        sure = sorted(
            (hits[:1] for hits in found if hits and hits[0].score >= PART_SCORE), key=lambda hits: -hits[0].score
        )
        return Found(_merged(sure, whole, k) if len(sure) > 1 else whole, tuple(found))

    def _ranked(
        self,
        ranking: Ranking,
        question: _Question,
        k: int,
        talk: _Talk,
        similarities: NDArray[np.float64] | None = None,
    ) -> tuple[FaqHit, ...]:
        """Return one question's hits. One that leans is searched by terms alone: its embedding does not say on what it
        leans."""
        weights, shares = question.weights, question.shares
        own = ranking.best_of(shares, k)
        if talk.before is not None and question.leans(talk.borne):
            leant_on = talk.before()
            joined = ranking.shares(with_previous(weights, leant_on.question, leant_on.grounding))
            scores = scores_of(joined, shares, weights)
            if talk.borne is not None:
                scores[talk.borne] *= BORNE_WEIGHT
            return _merged([ranking.best_of(scores, k), own[:1]], (), k)
        return own if similarities is None else ranking.best_of(shares + SIMILARITY_WEIGHT * similarities, k)

    def _talk(self, previous: Sequence[Turn], borne: int | None) -> _Talk:
        return _Talk(cache(partial(self._before, previous)), borne) if previous else _Talk()

    def _before(self, turns: Sequence[Turn]) -> _Before:
        """Return the last turn; where its question leaned on another, the entry that answered it says on what. Of an
        answer without one it is the entry that is found now."""
        last = turns[-1]
        if last.grounding:
            question = last.grounding[0].question
        else:
            hits = self.search(last.user, k=1, previous=turns[-2:-1])
            question = hits[0].entry.question if hits else ""
        return _Before(self._terms_of.weights(last.user), self._terms_of.weights(question))

    def _asked(self, text: str) -> _Before:
        """Return the question before, in the same message."""
        return _Before(self._terms_of.weights(text), {})


def _merged(lists: Sequence[Sequence[FaqHit]], rest: Sequence[FaqHit], k: int) -> tuple[FaqHit, ...]:
    """Merge the lists: the first of each, then the second of each, and so on; then the rest. No entry twice, no score
    above the one before."""
    merged: dict[FaqEntry, float] = {}
    least = 1.0
    for hit in (*(hit for place in zip_longest(*lists) for hit in place if hit is not None), *rest):
        if hit.entry not in merged:
            least = min(least, hit.score)
            merged[hit.entry] = least
    return tuple(FaqHit(entry, score) for entry, score in merged.items())[:k]
