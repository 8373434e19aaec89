"""Check whether a sentence of the model is supported by the shop's texts in its content words and in its negation
(facts and names are checked elsewhere). Pure.

A sentence is supported if most of its content words occur in the shop's texts, and if it is negated exactly when the
most similar sentence of the FAQ entry is. Words of the customer's question are not counted: "You can pay by cheque",
after "Can I pay by cheque?", repeats the question and proves nothing. Sentences with Chinese characters and questions
are not checked here.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from shared.faq.speech.polarity import denies
from shared.faq.speech.sentences import sentences
from shared.wire.outcome import Grounding

# Chosen on tests/unit/workers/answer/judged_answers.jsonl: of the sentences in a model's own words 0.6 shows 17 false
# ones more, and 0.8 drops 6 true ones more.
_SHARE: Final = 0.7
# The negation is compared with a sentence of the entry that has at least this share of the words.
_LIKE: Final = 0.5
_STEM: Final = 5
_WORD: Final = re.compile(r"[a-z][a-z']{2,}")
_POSSESSIVE: Final = re.compile(r"'s?$")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_WISH: Final = re.compile(r"\bhave a (?:nice|good|great|lovely) (?:day|time|evening|weekend)\b")
# "I do not know that. Shall I connect you with a person?"
_ABSTAINS: Final = re.compile(
    r"\b(?:i|we) (?:do not|don't|cannot|can't) (?:know|answer|find|have (?:\w+ )?information)\b"
    r"|\b(?:i'm|i am|we're|we are) not sure\b|\b(?:connect|transfer|put) you (?:with|to|through)\b[^?]*\?"
    r"|我(?:们)?(?:不知道|不清楚|不确定|无法回答)|(?:转接|转|联系)人工[^？?]*[？?]",
    re.IGNORECASE,
)
_QUESTION: Final = re.compile(r"\?[\"”’)\s]*$")
# Function words, and words of courtesy that claim nothing.
_STOP_TEXT: Final = """
a all also am an and any are aren't as at be been being but by can can't cannot could did do does doesn't don't each for
from get got had has have he her his how i'd i'll i'm i've if in is isn't it it's its just may might must my not of on
one only or our she should so than that the their them then there these they this those to two us was we we'll we're
were what when where which who why will with won't would yes you you'll you're your
bye course glad goodbye great happy hello help hey hope know let nice please shall sorry sure thank thanks welcome well
"""
_STOP: Final = frozenset(_STOP_TEXT.split())


class _ShopSentence(NamedTuple):
    """A sentence of the shop's."""

    terms: frozenset[str]
    denies: bool


class Claims:
    """The claims that an answer may make."""

    def __init__(self, grounding: Sequence[Grounding], shops: Iterable[str] = ()) -> None:
        """Collect the shop's sentences.

        Args:
            grounding: the FAQ entries that the model was given.
            shops: further texts of the shop, in which words may occur.
        """
        self._abstaining = [part for entry in grounding for part in sentences(entry.answer) if _abstains(part)]
        self._answers = [said for entry in grounding for said in _sentences_of(entry.answer)]
        texts = (*(text for entry in grounding for text in (entry.question, entry.answer)), *shops)
        self._terms = frozenset[str]().union(*(_terms_of(text) for text in texts))

    def abstains(self, sentence: str) -> bool:
        """Return whether a sentence says that the answer is not known, or offers a person, as no entry does."""
        terms, said = _content(sentence) - _UNKNOWN, sentence.strip()
        return _abstains(sentence) and not any(
            said in part or (terms and len(terms & _content(part)) >= _SHARE * len(terms)) for part in self._abstaining
        )

    def bears_out(self, sentence: str) -> bool:
        """Return whether the shop's texts bear out what a sentence claims."""
        if _QUESTION.search(sentence) or _HAN.search(sentence):
            return True
        terms = _content(sentence)
        if len(terms & self._terms) < _SHARE * len(terms):
            return False
        likeness = [len(terms & said.terms) for said in self._answers]
        most = max(likeness, default=0)
        if not most or most < _LIKE * len(terms):
            return True
        alike = [said.denies for said, like in zip(self._answers, likeness, strict=True) if like == most]
        return denies(sentence) in alike


def _abstains(text: str) -> bool:
    return _ABSTAINS.search(text.replace("’", "'")) is not None


@lru_cache(1_024)
def _sentences_of(answer: str) -> tuple[_ShopSentence, ...]:
    """Return an entry's sentences. They are cached: the same entries are in many prompts."""
    return tuple(_ShopSentence(_content(part), denies(part)) for part in sentences(answer))


@lru_cache(1_024)
def _terms_of(text: str) -> frozenset[str]:
    return _content(text)


def _content(text: str) -> frozenset[str]:
    """Return the stems of a text's content words."""
    plain = _WISH.sub("", text.lower().replace("’", "'"))
    words = (_POSSESSIVE.sub("", word) for word in _WORD.findall(plain))
    return frozenset(word[:_STEM] for word in words if word not in _STOP)


# The words of `_ABSTAINS`, which do not say what is not known.
_UNKNOWN: Final = _content("answer find information")
