"""Split a message into its questions: "How do I return it, and when do I get my money back?" has two. Pure.

A message is split at sentence ends, and inside a sentence where another question is appended ("and how …"). A statement
belongs to the question after it, or to the last question if no other follows. A message with fewer than two questions
is not split. Only the beginning and end of a long message are read, as for its terms.
"""

import re
from typing import Final

from shared.faq.terms import ends_of

MOST_PARTS: Final = 3

_SENTENCE_END: Final = re.compile(r"(?<=[?!？！。；;\n])\s*|(?<=\.)\s+")
_QUESTION_WORD: Final = (
    r"(?:how|what|when|where|which|who|whose|why|can|could|may|do|does|did|is|are|was|will|would|should|have|has)\b"
)
# These join two questions and are removed; the text after them is a separate question.
_JOINED: Final = re.compile(
    rf"[,;]?\s+(?:and|or|but|plus|then)\s+(?:also\s+)?(?={_QUESTION_WORD})"
    r"|[,;]?\s+(?:and\s+also|and\s+another\s+(?:question|thing)|also,|oh\s+and|plus,)\s+"
    r"|[，,、；\s]*(?:另外|此外|顺便(?:再)?(?:问一下|问下|问问|问)?|以及|同时|再问(?:一下|下)?|对了)[，,：\s]*"
    r"|[，,；\s]+(?:还有|还想问(?:一下|下)?)(?!货|没|多|几|吗|剩)[，,：\s]*",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    rf"[?？]\s*$|^\W*(?:(?:and|also|but|so|hi|hello|hey|ok)\b\W*)*{_QUESTION_WORD}"
    r"|吗|呢|怎么|怎样|如何|什么|多久|多少|多长|几[天个点次期年时]|谁|哪|能不能|可不可以|是不是|有没有|会不会|为啥|为什么",
    re.IGNORECASE,
)
# Runs of commas are shortened: `_JOINED` would start another search at each of their characters.
_COMMAS: Final = re.compile(r"([，,、：])[，,、：\s]+")
_CHINESE_COMMA: Final = re.compile(r"(?<=[\u3400-\u9fff])[，,]")


def parts_of(text: str) -> list[str]:
    """Return the message's questions in order; the whole message if it has one question, or more than `MOST_PARTS`."""
    parts: list[str] = []
    story = ""
    for sentence in _SENTENCE_END.split(ends_of(text)):
        for piece, joined in _pieces(sentence):
            if joined or _ASKS.search(piece):
                parts.append(f"{story} {piece}".strip())
                story = ""
            else:
                story = f"{story} {piece}".strip()
    if story and parts:
        parts[-1] = f"{parts[-1]} {story}"
    return parts if 1 < len(parts) <= MOST_PARTS else [text]


def _pieces(sentence: str) -> list[tuple[str, bool]]:
    """Return the pieces of a sentence, each with whether it always counts as a question. All do if the sentence joins
    several questions ("and how …")."""
    sentence = _COMMAS.sub(r"\1 ", " ".join(sentence.split()))
    pieces = [piece for piece in _JOINED.split(sentence) if piece.strip()]
    if len(pieces) > 1:
        return [(piece, True) for piece in pieces]
    clauses = [clause for clause in _CHINESE_COMMA.split(sentence) if clause.strip()]
    if sum(_ASKS.search(clause) is not None for clause in clauses) > 1:
        return [(clause, False) for clause in clauses]
    return [(sentence, False)] if sentence.strip() else []
