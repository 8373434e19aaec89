"""Find the terms by which a text is indexed and searched, and its language. No I/O, no state but the stemmer. Each
function takes a text as it was typed and folds it first (`words.fold`).

- A stock-keeping unit such as AX-3391-B gives the whole code (`ax-3391-b`, `ax-3391`) and its parts (`ax`, `3391`),
  in any spelling: `AX-3391-B`, `ax3391b`, `AX 3391 B`.
- Latin words are stemmed; stop words are dropped. - Chinese is cut into words by a dictionary (rjieba, which is jieba
in Rust). Words that every question has are dropped.
  The text between two of them gives its words, its characters and its pairs of neighbouring characters. So a word that
  is not in the dictionary, or that is cut differently, is found by its pairs.
- A word that has another name in `synonyms` gives that name too, as a separate term (`=invoice`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import Stemmer

from shared.faq.words.fold import Plain, fold, plain
from shared.wire.messages import Language

# Words that customers of a shop use for the same thing: each word of a row also gives the term of the row's name. The
# table has the vocabulary of shops in general and no phrasing of any FAQ. A word with a second meaning does no harm,
# since the word itself remains a term.
_TABLE: Final = msgspec.json.decode(
    Path(__file__).with_name("synonyms.json").read_bytes(), type=dict[str, dict[str, str]]
)
_PAIRS: Final = _TABLE["english_pairs"]
# A verb and what makes it another: "call it off", "send the shoes back". So many words may stand between.
PAIR_REACH: Final = 4


def _by_word(table: dict[str, str], *, with_name: bool) -> dict[str, tuple[str, ...]]:
    """Each word of the table with its names."""
    names: dict[str, list[str]] = {}
    for name, words in table.items():
        for word in (*([name] if with_name else []), *words.split()):
            names.setdefault(word, []).append(name)
    return {word: tuple(of_word) for word, of_word in names.items()}


NAMES: Final = _by_word({**dict.fromkeys(_PAIRS, ""), **_TABLE["english"]}, with_name=True)
PAIR_NAMES: Final = {
    (pair.partition("-")[0], pair.partition("-")[2]): name for name, pairs in _PAIRS.items() for pair in pairs.split()
}
CHINESE_NAMES: Final = _by_word(_TABLE["chinese"], with_name=False)


# A message that is longer than this is a story with a question at its start or its end.
MAX_CHARS: Final = 600

# What a term of a question counts, by its kind. An article's number gives up to four terms and names one thing: at full
# weight it would outweigh what is asked of the article. Two characters that no word joins are weak evidence, and so is
# one alone; a word and its other name count together as a little more than a word without one.
SKU_WEIGHT: Final = 0.5
SKU_PART_WEIGHT: Final = 0.25
NAME_WEIGHT: Final = 0.8
NAMED_WORD_WEIGHT: Final = 0.6
CHARACTER_WEIGHT: Final = 0.5
LOOSE_PAIR_WEIGHT: Final = 0.3
_PAIR: Final = 2

_HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_KANA_OR_HANGUL: Final = re.compile(r"[\u3040-\u30ff\u1100-\u11ff\uac00-\ud7af]")
_WORD: Final = re.compile(r"[a-z0-9]+")
# In a text without words these say how it was typed.
_CHINESE_SIGNS: Final = re.compile("[\u3002\u3001\uff01\uff0c\uff1f\u2026]{1}")
_LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
_WHOLE_WORD: Final = re.compile(r"[^\W\d_]+")
_SKU: Final = re.compile(r"(?<![a-z0-9])([a-z]{2})[-_ ]?([0-9]{4})(?:[-_ ]?([a-z]))?(?![a-z0-9])")
_CONTRACTION: Final = re.compile(r"(?<=[a-z])(n)?'([a-z]{1,2})(?![a-z])")

# Words that every question has: they say nothing of what is asked.
_STOP_TEXTS: Final = msgspec.json.decode((Path(__file__).parent / "words" / "stop_words.json").read_bytes())
_STOP_WORDS: Final = frozenset(_STOP_TEXTS["english"].split())
_CHINESE_STOP_WORDS: Final = frozenset(_STOP_TEXTS["chinese"].split())
# Of an English sentence's words about every second is one of these. So many words make a sentence.
_ENGLISH_SHARE: Final = 1 / 3
_SENTENCE_WORDS: Final = 3


def ends_of(text: str) -> Plain:
    """Return the part of a text that counts, in plain characters: of a long text its two ends, about `MAX_CHARS`
    characters together."""
    text = plain(text)
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return Plain(f"{text[:half]} {text[-half:]}")


def detect_language(text: str) -> Language:
    """Return the FAQ's language for a text by its script: Chinese, or English for everything else. A Latin word counts
    as a Chinese character, so that a Chinese sentence with a brand or an SKU stays Chinese. Kana and Hangul mean
    Japanese and Korean, which the FAQ does not speak."""
    text = ends_of(text)
    han = sum(len(run) for run in _HAN.findall(text))
    if not any(map(str.isalnum, text)):
        return "zh" if _CHINESE_SIGNS.search(text) else "en"
    if han == 0 or len(_KANA_OR_HANGUL.findall(text)) * 2 > han:
        return "en"
    latin = len(_LETTERS.findall(_HAN.sub(" ", text)))
    return "zh" if han >= latin else "en"


def language_within(text: str, earlier: Iterable[str]) -> Language:
    """Return the language of a message; of one without letters, such as 👍 or a number, that of the first of the
    `earlier` messages (the last one first) that has any."""
    if any(map(str.isalpha, text)) or detect_language(text) == "zh":
        return detect_language(text)
    return detect_language(next((said for said in earlier if any(map(str.isalpha, said))), text))


def seems_foreign(text: str) -> bool:
    """Return whether a text is probably in a language that the FAQ does not speak: most of its words are in another
    script, or it is a sentence with hardly an English function word. English without them ("card declined wtf") seems
    foreign too, so this is for a text that finds nothing."""
    if detect_language(text) == "zh":
        return False
    words = _WHOLE_WORD.findall(fold(ends_of(text)))
    latin = [word for word in words if word.isascii()]
    if len(latin) < len(words) / 2:
        return True
    return len(latin) >= _SENTENCE_WORDS and sum(word in _STOP_WORDS for word in latin) < _ENGLISH_SHARE * len(latin)


def wording(text: str) -> str:
    """Return the letters and digits of a folded text: equal for two texts that are typed alike."""
    return "".join(filter(str.isalnum, fold(ends_of(text))))


def words_in(text: str) -> list[str]:
    """Return the distinct words of a text but for stop words, as they are written, in their order."""
    folded = fold(ends_of(text))
    words = [word for word in _WORD.findall(_CONTRACTION.sub(_spell_out, folded)) if word not in _STOP_WORDS]
    for run in _HAN.findall(folded):
        words += [word for word in _cutter()(run, False) if word not in _CHINESE_STOP_WORDS]
    return list(dict.fromkeys(words))


class TermExtractor:
    """Turns text into terms. Holds the stemmer, which is not to be shared between threads."""

    def __init__(self) -> None:
        stemmer = Stemmer.Stemmer("english")
        stem, self._stems = stemmer.stemWord, stemmer.stemWords
        names_of: dict[str, set[str]] = {}
        for word, names in NAMES.items():
            names_of.setdefault(stem(word), set()).update(f"={name}" for name in names)
        self._names = {word: sorted(names) for word, names in names_of.items()}
        self._pair_names = {(stem(one), stem(two)): f"={name}" for (one, two), name in PAIR_NAMES.items()}
        self._pair_ends = {end for _, end in self._pair_names}

    def __call__(self, text: str) -> list[str]:
        """Return the terms of a text in their order, with repetitions. Only the ends of a long text count."""
        return [term for term, _ in self._weighted(text)]

    def names_of(self, term: str) -> Sequence[str]:
        """Return the other names of a Latin word, given its stem."""
        return self._names.get(term, ())

    def weights(self, text: str) -> dict[str, float]:
        """Return the weight of each of a question's terms, in (0, 1], in their order."""
        weights: dict[str, float] = {}
        for term, weight in self._weighted(text):
            weights[term] = max(weight, weights.get(term, 0.0))
        return weights

    def _weighted(self, text: str) -> list[tuple[str, float]]:
        folded = fold(ends_of(text))
        terms = [(sku, SKU_WEIGHT) for sku in _sku_terms(folded)]
        self._add_words(folded, terms)
        for run in _HAN.findall(folded):
            _add_chinese(run, terms)
        return terms

    def _add_words(self, folded: str, terms: list[tuple[str, float]]) -> None:
        words = _WORD.findall(_SKU.sub(_sku_parts, _CONTRACTION.sub(_spell_out, folded)))
        stems = self._stems(words)
        of_skus = {part for match in _SKU.finditer(folded) for part in match.groups()[:2]}
        turned: set[int] = set()
        for end, stem in enumerate(stems):
            if stem in self._pair_ends:
                for begin in range(max(0, end - PAIR_REACH), end):
                    name = self._pair_names.get((stems[begin], stem))
                    if name is not None:
                        terms.append((name, 1.0))
                        turned.add(begin)
        for at, (word, stem) in enumerate(zip(words, stems, strict=True)):
            if at in turned:
                continue
            names = self._names.get(stem, ())
            terms.extend((name, NAME_WEIGHT) for name in names)
            if len(word) > 1 and word not in _STOP_WORDS:
                whole = NAMED_WORD_WEIGHT if names else 1.0
                terms.append((stem, SKU_PART_WEIGHT if word in of_skus else whole))


def _spell_out(match: re.Match[str]) -> str:
    # "didn't arrive" says "not arrive"; "we'll" and "it's" say nothing that the index knows.
    return " not" if match[1] else ""


def _sku_terms(folded: str) -> list[str]:
    terms = []
    for series, number, variant in _SKU.findall(folded):
        terms.append(f"{series}-{number}")
        if variant:
            terms.append(f"{series}-{number}-{variant}")
    return terms


def _sku_parts(match: re.Match[str]) -> str:
    return f" {match[1]} {match[2]} "


@cache
def _cutter() -> Callable[[str, bool], list[str]]:
    """Return the dictionary's cutter, with the words of ours that it lacks. It takes 0.1 s and 33 MB: an English FAQ
    does without."""
    import rjieba

    for word in CHINESE_NAMES:
        if not rjieba.has_word(word):
            rjieba.add_word(word, rjieba.suggest_freq(word), "n")
    return rjieba.cut


def _add_chinese(run: str, terms: list[tuple[str, float]]) -> None:
    stretch: list[str] = []
    for word in _cutter()(run, False):  # False: no guesses at words that the dictionary lacks
        if word not in _CHINESE_STOP_WORDS:
            stretch.append(word)
            continue
        terms.extend((f"={name}", NAME_WEIGHT) for name in CHINESE_NAMES.get(word, ()))
        _add_stretch(stretch, terms)
        stretch = []
    _add_stretch(stretch, terms)


def _add_stretch(words: Sequence[str], terms: list[tuple[str, float]]) -> None:
    """Add the terms of neighbouring words."""
    joined = "".join(words)
    loose: set[int] = set()
    start = 0
    for word in words:
        names = CHINESE_NAMES.get(word, ())
        terms.extend((f"={name}", NAME_WEIGHT) for name in names)
        if len(word) > _PAIR:
            terms.append((word, NAMED_WORD_WEIGHT if names else 1.0))
        start += len(word)
        loose.add(start - 1)
    terms.extend((char, CHARACTER_WEIGHT) for char in joined)
    terms.extend((joined[at : at + _PAIR], LOOSE_PAIR_WEIGHT if at in loose else 1.0) for at in range(len(joined) - 1))
