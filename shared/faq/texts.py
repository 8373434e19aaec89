"""Check that a text may be used in the FAQ, whose texts are shown to customers unchanged and put into prompts. Pure.

HTML is refused. Every client shows an answer as plain text, and what an HTML renderer would drop (a link's address, a
list's order, a table) is what the customer needs, so the shop has to write it as text.
"""

import json
import re
from typing import Final

from shared.faq.words.markup import TAG, elements_of, entity_in

# Nothing of a question behind this is searched; the longest answers still leave room in a prompt.
MAX_QUESTION_CHARS: Final = 600
MAX_ANSWER_CHARS: Final = 4_000

_SHOWN_CHARS: Final = 60
# Line ends and tabs are allowed in an answer. Refused are control characters, characters that change the direction of
# writing, surrogates (they cannot be encoded), and the byte order mark.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
# Invisible characters that only break words. Joiners, selectors and tags make emoji of others, and stay.
INVISIBLE: Final = re.compile(
    r"\u00ad[ \t]*\r?\n[ \t]*"
    r"|[\u00ad\u034f\u061c\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\ufff0-\ufffb]"
)


def fault_of(text: str, most_chars: int) -> str | None:
    """Return what is wrong with a text, and the remedy, in one line; None if the text is right."""
    if not INVISIBLE.sub("", text).strip():
        return "an empty text"
    if len(text) > most_chars:
        return f"a text of {len(text)} characters ({shown(text)}); the most is {most_chars}"
    return _foreign(text) or _markup(text)


def shown(text: str) -> str:
    """Return a text in quotes, on one line; of a long text only its beginning."""
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return json.dumps(cut, ensure_ascii=_CONTROL.search(cut) is not None)


def _foreign(text: str) -> str | None:
    if (control := _CONTROL.search(text)) is not None:
        return f"the control character U+{ord(control[0]):04X} in {shown(text)}; remove it"
    if "\ufffd" in text:
        return f"U+FFFD in {shown(text)}, which stands for a character that was lost; write it anew"
    return None


def _markup(text: str) -> str | None:
    if (tag := TAG.search(elements_of(text))) is not None:
        return f"the HTML {shown(tag[0])}; write plain text, a link as its address"
    if (entity := entity_in(text)) is not None:
        return f"the HTML {shown(entity)}; write the character itself"
    return None
