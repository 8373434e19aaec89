"""Texts for the demo's model: the FAQ's English wordings, the customers' turns, and what is generated from them. Pure.

Generated are phrasings of the long tail (misspelt, clipped, in dialect, in a letter's stiffness, in broken English) and
messages about article, order and serial numbers that mix letters and digits. SmolLM2 knows English alone. No customer
wrote any of them.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from ops.texts.calibration_set import CalibrationText
from ops.texts.conversations import Conversation
from shared.faq.entries import FaqEntry

_T = TypeVar("_T")

_RARE_FRAMES: Final = (
    "ey up, {q} ta love",
    "soz 4 the bother but {q} cheers m8",
    "Dear Sir or Madam, further to my letter of the 3rd inst. I beg to enquire: {q} I remain, yours faithfully,",
    "Guten Tag, I not speak so good the english. {q} Many thank.",
    "my nan's been on at me all week: {q} she hasn't the foggiest and nor have I tbh",
    "yo fr fr {q} asap no cap",
    "URGENT!!! {Q}!!! 3RD TIME ASKING!!!",
    "q: {q} a: ??? nobody tells me owt",
    "hola, disculpe la molestia, {q} gracias, un saludo",
    "[sent from my fridge] {q}",
    "och, dinnae fash yersel but {q}",
    "so like, the thing with the thing, you know? {q} or whatever it's called over there",
    "{q} pretty please w/ a cherry on top xoxo",
    "voice2text: hey um {q} comma thank you full stop send no send it",
    "G'day, chucked a sickie so I've all arvo: {q}",
    "bjr, svp, {q} merci d'avance!!",
    "As per Annex B of your terms, notwithstanding the foregoing, {q} Kindly revert at the earliest.",
    "kid pressed buy lol {q}",
    "wot abt {q} asking 4 a friend (its me im the friend)",
    "{q} (the wife says hullo and mind the cat)",
)
_CLIPPED: Final = {
    "you": "u", "your": "ur", "are": "r", "please": "pls", "because": "cuz", "before": "b4", "to": "2", "for": "4",
    "what": "wot", "how": "hw", "my": "me", "the": "da", "with": "w/", "without": "w/o", "and": "n", "order": "ordr",
    "delivery": "dlvry", "return": "retrn", "message": "msg", "money": "dosh", "password": "pw", "is": "iz",
}  # fmt: skip
_DROPPED: Final = frozenset(
    {
        *("a", "an", "the", "i", "my", "me", "it", "to", "of", "for", "in", "on"),
        *("is", "are", "was", "do", "does", "did", "can", "could", "will", "would"),
    }
)
_SKU_FRAMES: Final = (
    "where is {a}?",
    "{a} in stock?",
    "{a} or {b}, which is newer?",
    "is {a} the same as {b}? the label says {c}",
    "order {a}: two of {b}, none of {c} arrived",
    "please swap {a} size 38 for {b} size 39",
    "{a} / {b} / {c} - 3x each, same invoice pls",
    "The charger of my {a} is marked {b}; will {c} fit, or does it only take the older plug?",
    "serial {a}, bought in March, will not switch on. Is that still within the warranty?",
    "spare part {a} for {b}",
    "I typed voucher {a} and it says not valid for {b}. Why? It came with my parcel {c} last week.",
    "tracking {a} has not moved since Tuesday, the parcel holds {b} and a gift, {c}, for Saturday",
    "cancel {a} but keep {b}",
    "my {a} came without its lid and the box said {b}, I think the warehouse mixed it up with {c}",
    "How many litres does the {a} hold, and is the {b} filter included?",
    "return label for {a} pls, RMA {b}",
    "Colour of {a}: on the site it is green, on the box {b} it is called moss, in the mail {c} olive. Which is it?",
    "firmware {a} on {b} keeps crashing after the update to {c}",
    "does {a} need batteries",
    "I paid {a} twice, see transfers {b} and {c}; one should come back to my card, when will it be there?",
    "EAN says {a}, your page says {b}, my cousin has {c}. which do i reorder",
    "bulk price for 40 x {a} and 12 x {b} delivered to a school?",
    "The seam of jacket {a} tore on the second day. I would rather have {b} in return than the money.",
    "{a} {b} {c} {a}",
    "is the manual of {a} to be had as a PDF, the printed one is for {b}",
    "what do you give me for my old {a} if I take the {b}",
)
_SKUS_A_FRAME: Final = 14
_LETTERS: Final = "ABCDEFGHJKLMNPRSTUVWXZ"
# A: a letter, 9: a digit.
_SKU_FORMS: Final = ("AA-9999-A", "AA9999A", "A9A9A9", "AA-99999", "AAA99-A9", "A99A999", "AA99-AAA9-9A", "AAAA-99")


def demo_texts(entries: Iterable[FaqEntry], conversations: Iterable[Conversation]) -> list[CalibrationText]:
    """About 650 common texts, 450 rare and 360 with numbers, always the same ones."""
    english = [entry for entry in entries if entry.language == "en"]
    talks = [one for one in conversations if one.language == "en"]
    return [
        *(text for entry in english for text in _common(entry)),
        *(CalibrationText(text=turn, origin="own", group=one.id) for one in talks for turn in one.turns),
        *(text for entry in english for text in _rare(entry)),
        *_with_numbers(),
    ]


def _common(entry: FaqEntry) -> Iterator[CalibrationText]:
    for asked in (entry.question, *entry.alternatives):
        yield CalibrationText(text=asked, origin="own", group=entry.id)
    yield CalibrationText(text=entry.answer, origin="own", group=entry.id, role="assistant")


def _rare(entry: FaqEntry) -> Iterator[CalibrationText]:
    """Each way of asking in another manner; some are put together, for the longest."""
    asked = (entry.question, *entry.alternatives)
    for number, question in enumerate(asked):
        manner = _pick(_MANNERS, question, "manner")
        frame = _pick(_RARE_FRAMES, question, "frame")
        odd = manner(question)
        if number % 3 == 1:
            odd = f"{odd} and another thing, {manner(_pick(asked, question, 'more'))}"
        if number % 2 == 0 or odd == question:
            odd = frame.format(q=odd, Q=odd.upper())
        yield CalibrationText(text=odd, origin="own", rare=True, group=entry.id)


def _with_numbers() -> Iterator[CalibrationText]:
    """A frame is a group, so that what is measured by is asked in none of the calibration's words."""
    for frame in _SKU_FRAMES:
        for number in range(_SKUS_A_FRAME):
            numbers = {name: _sku(frame, f"{number}{name}") for name in "abc"}
            yield CalibrationText(text=frame.format(**numbers), origin="own", group=frame)


def _sku(frame: str, key: str) -> str:
    drawn = _draw(frame, key)
    form = _SKU_FORMS[drawn % len(_SKU_FORMS)]
    made = []
    for at, place in enumerate(form):
        choice = _draw(frame, f"{key}/{at}")
        made.append(_LETTERS[choice % len(_LETTERS)] if place == "A" else str(choice % 10) if place == "9" else place)
    sku = "".join(made)
    # Customers do not all press shift.
    return sku.lower() if drawn % 5 == 0 else sku


def _misspelt(text: str) -> str:
    """Every third word or so with two letters swapped, one lost or one doubled."""
    words = text.split(" ")
    for at, word in enumerate(words):
        drawn = _draw(text, f"word {at}")
        if len(word) > 3 and drawn % 3 != 0:  # noqa: PLR2004 - the short words are the ones spelt right
            place = 1 + drawn // 3 % (len(word) - 2)
            head, here, tail = word[:place], word[place], word[place + 1 :]
            words[at] = (f"{head}{tail[:1]}{here}{tail[1:]}", f"{head}{tail}", f"{head}{here}{here}{tail}")[
                drawn % 7 % 3
            ]
    return " ".join(words)


def _clipped(text: str) -> str:
    return re.sub(r"[A-Za-z]+", lambda word: _CLIPPED.get(word[0].lower(), word[0].lower()), text)


def _telegraphic(text: str) -> str:
    return " ".join(word for word in re.findall(r"[\w'-]+", text) if word.lower() not in _DROPPED)


def _run_on(text: str) -> str:
    return re.sub(r"[^\w ]", "", text).lower().replace(" a ", " uh a ").replace(" the ", " the the ")


_MANNERS: Final[Sequence[Callable[[str], str]]] = (_misspelt, _clipped, _telegraphic, _run_on)


def _pick(options: Sequence[_T], *keys: str) -> _T:
    return options[_draw(*keys) % len(options)]


def _draw(*keys: str) -> int:
    return int.from_bytes(hashlib.blake2b("/".join(keys).encode(), digest_size=8).digest())
