"""Show a model's text one sentence at a time, and only sentences whose facts are in the model's input. Pure.

Amounts, periods, dates and the like (shared/facts), names, places and certificates must occur in the answer's grounding
or in the shop's other texts, and so must most words of a small model's sentence (`workers.answer.claims`). A "Yes" or
"No" is shown only if an entry's answer begins with it. Any other sentence is replaced by the FAQ's own text, or left
out, and so is "I don't know". A model that repeats itself is stopped. What is shown does not depend on the pieces in
which the text comes.
"""

import re
from collections.abc import Sequence
from typing import Final

from shared.facts import Known, facts_in
from shared.facts.proper import unknown_names, words_of
from shared.faq.speech.polarity import opening_of
from shared.faq.speech.sentences import MAX_CHARS, Cut, may_end, next_cut
from shared.wire.outcome import Grounding, Replaced
from workers.answer.claims import Claims
from workers.answer.quotes import Quotes, Repetition, goes_round

# Between a number and the end of a text that was cut off there is room for the unit that it would have had.
_UNDECIDED_CHARS: Final = 24
_ENDS: Final = ".!?…。！？"
_BREAK: Final = "…"
# A reply that is nothing without what follows: it waits for that, for "Yes." before the FAQ's sentence may be a lie.
_REPLY: Final = re.compile(
    r"\s*(?:(?:yes|no|yep|sure|certainly|absolutely|of course|correct)(?![a-z])[^\n]{0,16}"
    r"|(?:[是对不能有]|可以|没有|当然)[^\n]{0,5})",
    re.IGNORECASE,
)


class FactGuard:
    """Judges one answer. `feed` and `finish` return what may be shown; together that is the answer."""

    def __init__(
        self,
        grounding: Sequence[Grounding],
        customers: Sequence[str],
        shops: Sequence[str] = (),
        *,
        judge_words: bool = True,
    ) -> None:
        """Guard an answer.

        Args:
            grounding: the FAQ entries that the model was given, best first. Without any, only facts are judged.
            customers: the question and those of earlier turns. With a grounding, only their codes, links
                and the like may be repeated, no figure: a customer's "10 days" is no evidence.
            shops: further texts of the shop, which bear out facts and names.
            judge_words: judge the words and the negation of each sentence too. A large model says in other words what
                an entry says, and would lose true sentences.
        """
        given = [text for entry in grounding for text in (entry.question, entry.answer)]
        self._known = Known(given)
        self._customers, self._shops = customers, shops
        self._grounded = bool(grounding)
        self._claims = Claims(grounding, shops) if grounding and judge_words else None
        self._names = words_of((*given, *shops)) if grounding else None
        openings = [opening_of(entry.answer) for entry in grounding]
        self._polarities = {opening.polarity for opening in openings if opening is not None}
        self._quotes = Quotes(grounding)
        self._repetition = Repetition()
        self._held = ""
        self.may_end = False
        """Whether what is held has a mark that may end a sentence: what follows decides it."""
        self._shown = ""
        self._reply = ""
        self._gap = ""
        self._opens = True
        self._within = False
        self._skipping = False
        self._models_chars = 0
        self._replaced: list[Replaced] = []
        self.abstained = False
        """Whether the model has written that it does not know the answer; that is left out."""
        self.cut = False
        """Whether the model went round in circles: nothing more of it is shown, the sequence is to end."""

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        """Return the parts of the shown text that replace the model's text. They do not overlap."""
        return tuple(self._replaced)

    @property
    def held_chars(self) -> int:
        """Return how much is waiting for the end of its sentence, or for the one behind it."""
        return len(self._reply) + len(self._held)

    @property
    def is_models(self) -> bool:
        """Return whether any shown text is the model's."""
        return self._models_chars > 0

    def feed(self, text: str) -> str:
        """Text has come; returns what may be shown now."""
        if self.cut:
            return ""
        self._held += text
        self.may_end = self.may_end or may_end(text)
        if not self.may_end and len(self._held) < MAX_CHARS:
            return ""
        before = len(self._shown)
        while not self.cut and (cut := next_cut(self._held)) is not None:
            self._judge(cut)
        self.may_end = may_end(self._held)
        return self._shown[before:]

    def finish(self, *, whole: bool = True) -> str:
        """End the text; not `whole`: it was cut off. Returns what is shown of what was held back."""
        before = len(self._shown)
        if not self.cut:
            if not whole:
                self._held = self._decided(self._held)
            if self._held:
                self._judge(Cut(len(self._held), whole=True))
        self._held = ""
        if self._reply:
            self._show("")
        quoted = None if self.is_models else next((each.id for each in reversed(self._replaced) if each.id), None)
        if quoted is not None and (rest := self._quotes.rest_of(quoted, self._shown)):
            self._quote(quoted, rest)
        return self._shown[before:]

    def _judge(self, cut: Cut) -> None:
        """Show, replace or leave out the first characters of what is held."""
        part, self._held = self._held[: cut.length], self._held[cut.length :]
        opens, self._opens = self._opens, False
        within, self._within = self._within, not cut.whole
        if self._skipping:
            self._skipping = not cut.whole
            return
        if not within and self._names is not None:
            part = self._without_unborne_opening(part)
            if not part:
                self._leave_out()
                self._skipping = not cut.whole
                return
        if self._quotes.has_said(part):
            self._gap = self._gap or _leading_space(part)
            return
        if self._claims is not None and self._claims.abstains(part):
            self.abstained = True
            self._reply, self._gap = "", self._gap or _leading_space(part)
            self._leave_out()
            self._skipping = not cut.whole
            return
        if self._repetition.again(part):
            self._stop()
            return
        if goes_round(part):
            self._stop()
        elif not self._foreign(part, opens=opens):
            if cut.whole and not self._reply and _REPLY.fullmatch(part):
                self._reply = part
            else:
                self._show(part)
            return
        self._replace(part, within=within)
        self._skipping = not cut.whole

    def _without_unborne_opening(self, part: str) -> str:
        """Return a sentence without a "Yes" or "No" that no entry's answer begins with; empty if nothing is left."""
        opening = opening_of(part)
        if opening is None or opening.polarity in self._polarities:
            return part
        self._gap = self._gap or _leading_space(part)
        rest = part[opening.stop :]
        return _leading_space(part) + rest[0].upper() + rest[1:] if rest.strip(_ENDS + " ") else ""

    def _foreign(self, part: str, *, opens: bool) -> bool:
        """Return whether a fact, a name or a claim of a sentence occurs in no source. Texts besides the entries are
        parsed only if these do not contain a fact."""
        if self._names is not None and unknown_names(part, self._names):
            return True
        if self._known.foreign(part, opens=opens):
            shops, self._shops, customers, self._customers = self._shops, (), self._customers, ()
            self._known.add(shops)
            self._known.add(customers, names_only=self._grounded)
            if not (shops or customers) or self._known.foreign(part, opens=opens):
                return True
        return self._claims is not None and not self._claims.bears_out(part)

    def _show(self, part: str) -> None:
        part, self._reply = self._reply + part, ""
        if not self._shown and self._replaced:
            part = part.lstrip()  # what stood before it is gone
        elif not part[:1].isspace():
            part = self._gap + part
        self._gap = ""
        self._shown += part
        self._models_chars += len(part.strip())

    def _replace(self, part: str, *, within: bool) -> None:
        space = _leading_space(self._reply or part) or self._gap
        self._reply = ""
        if within and not self._shown.endswith(tuple(_ENDS)):
            self._shown, space = self._shown + _BREAK, space or " "  # half of the sentence is shown already
        quote = self._quotes.instead_of(part, self._shown)
        if quote is None:
            self._gap = space
            self._leave_out()
            return
        if self._shown:
            self._shown += space
        self._quote(quote.id, quote.text)

    def _quote(self, entry_id: str, text: str) -> None:
        """Words of the FAQ; one stretch with those before, where only space is between and the entry is the same."""
        start = len(self._shown)
        self._shown += text
        self._gap = " " if text[-1].isascii() else ""
        last = self._replaced[-1] if self._replaced else None
        if last is not None and last.id == entry_id and not self._shown[last.offset + last.length : start].strip():
            start = last.offset
            self._replaced.pop()
        self._replaced.append(Replaced(offset=start, length=len(self._shown) - start, id=entry_id))

    def _leave_out(self) -> None:
        last = self._replaced[-1] if self._replaced else None
        if last is None or last.offset + last.length != len(self._shown):  # else that stretch says it already
            self._replaced.append(Replaced(offset=len(self._shown), length=0))

    def _stop(self) -> None:
        self.cut = True
        self._held = ""

    def _decided(self, text: str) -> str:
        """Return a text that was cut off, without a number at its end that may be incomplete or lack its unit."""
        numbers = [fact for fact in facts_in(text, opens=self._opens) if fact.figures]
        if not numbers or len(text) - numbers[-1].stop > _UNDECIDED_CHARS:
            return text
        last, rest = numbers[-1], text[numbers[-1].stop :]
        room = last.kind == "number" and all(char.isalnum() or char in " -" for char in rest)
        return text[: last.start].rstrip() if room or not rest else text


def _leading_space(part: str) -> str:
    return part[: len(part) - len(part.lstrip())]
