"""Find whether a text opens with "Yes" or "No", and whether an FAQ entry bears that out for a question. Pure.

An entry's "Yes" answers the entry's own question. To another question it may be false: "Yes, the legs of the table are
sold singly" does not say that the table has a certificate. So an opening "Yes" or "No" is shown only if every word of
the customer's question occurs in one of the entry's wordings, and both are negated or neither is.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple

Polarity = Literal["yes", "no"]

_STOP: Final = r"[,;:!，；：！。、.—–-]"
# "Yes, we do." says no more than "Yes."
_TAG: Final = (
    r"(?:\s*(?:i|we|you|it|they|that|this|there)\s+(?:do|does|can|are|is|will|may|have|has|would|could|should)"
    r"(?:n't|\s*not)?(?:\s+(?:correct|right))?\s*[.!]+)?"
)
_YES: Final = (
    rf"yes(?![\w'-])(?:\s*[,;:!.—–-]+)?{_TAG}"
    rf"|(?:yep|yeah|sure|certainly|absolutely|of course|correct|indeed|definitely|that's right|right)\s*{_STOP}+"
    rf"|(?:是的?|对的?|可以的?|能|有的?|会的?|支持|需要|没错|当然(?:可以)?|好的)\s*{_STOP}+"
)
_NO: Final = (
    rf"(?:no|nope|unfortunately not|sadly not|not at all|never)\s*{_STOP}+(?!\s*\d){_TAG}"
    rf"|(?:不(?:是|对|可以|能|行|会|用|需要|支持)?|没有|无法|暂不支持)\s*{_STOP}+"
)
_OPENING: Final = re.compile(
    rf"\s*(?:(?:a|answer|答)\s?[:：]\s*)?(?:[*_\"“]{{0,3}})(?:(?P<yes>{_YES})|(?P<no>{_NO}))\s*", re.IGNORECASE
)
_DENIES: Final = re.compile(
    r"\b(?:not|no|never|without|cannot|isn't|aren't|don't|doesn't|didn't|won't|can't|couldn't|shouldn't|hasn't)\b"
    r"|(?<![是能会可])不(?![是能会可])|没(?!错)|别|无",
    re.IGNORECASE,
)


# "You can't." alone is an answer too, and so is "The answer is yes."
_REPLY: Final = re.compile(
    r"\s*(?:(?:i|we|you|it|they|that|this|there)\s+(?:do|does|can|are|is|will|may|have|has|would|could|should)"
    r"(?P<not>n?'t|not|\s+not)?|(?:the answer is|that is|it is|it's)\s+(?:yes|(?P<no>no)|possible|(?P<un>impossible)))"
    r"\s*[.!]+\s*",
    re.IGNORECASE,
)


# What depends on the "Yes" or "No" before it: a clause that opens so and is no sentence ("at checkout you can …").
_FRAGMENT: Final = re.compile(
    r"(?:for|if|but|within|from|up to|only|as (?:long|soon|far|many|much)|unless|until|with|without|on|in|by|at|to|and"
    r"|or|because|since|although|provided|except|not|even|then|so|new)\b"
    r"(?![^.!?;:]*\b(?:i|you|we|they|it|there|this|that|is|are|was|were|can|cannot|may|must|need|will)\b)"
    r"|(?:但|不过|如果|只要|除非|因为|虽然|直到|而且|所以)",
    re.IGNORECASE,
)


class Opening(NamedTuple):
    """The polarity that a text opens with, and where the text behind it begins."""

    polarity: Polarity
    stop: int


def opening_of(text: str) -> Opening | None:
    """Return the "Yes" or "No" that a text opens with, or is in other words ("You can't."); None for any other."""
    match = _OPENING.match(text)
    if match is None:
        reply = _REPLY.fullmatch(text.replace("’", "'"))
        return None if reply is None else Opening("no" if any(reply.groups()) else "yes", len(text))
    return Opening("yes" if match["yes"] is not None else "no", match.end())


def without_opening(text: str) -> str:
    """Return a text without an opening "Yes" or "No"; one that says nothing else as it is."""
    opening = opening_of(text)
    if opening is None or not text[opening.stop :].strip():
        return text
    rest = text[opening.stop :]
    return rest[0].upper() + rest[1:]


def stands_alone(text: str) -> bool:
    """Return whether a text is a whole sentence without its opening "Yes" or "No": "Yes, for all plans." is not."""
    opening = opening_of(text)
    return opening is None or (bool(text[opening.stop :].strip()) and not _FRAGMENT.match(text, opening.stop))


def bears_out(question: str, terms: AbstractSet[str], wordings: Iterable[tuple[str, AbstractSet[str]]]) -> bool:
    """Return whether an entry's "Yes" or "No" is one to this question.

    Args:
        question: What the customer asked, in plain characters.
        terms: Its terms, as the search has them.
        wordings: The entry's wordings in plain characters, each with its terms.
    """
    having = [wording for wording, own in wordings if terms <= own] if terms else []
    return any(denies(question) == denies(wording) for wording in having)


def denies(text: str) -> bool:
    """Return whether a text has a word that denies."""
    return _DENIES.search(text.replace("’", "'")) is not None
