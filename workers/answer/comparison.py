"""Compare a shadow's answer with the one that the customer had. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

from shared.facts import Known
from shared.wire.outcome import Grounding, Outcome
from shared.wire.shadow import Comparison, LiveAnswer


@dataclass(frozen=True, slots=True)
class Compared:
    """Compares answers to one question, by the shadow's tokens and by the texts that bear facts out."""

    encode: Callable[[str], Sequence[int]]
    known: Known

    @classmethod
    def of(cls, encode: Callable[[str], Sequence[int]], question: str, grounding: Sequence[Grounding]) -> "Compared":
        """Return the comparison's data. `grounding` are the entries in the shadow's prompt."""
        known = Known(text for entry in grounding for text in (entry.question, entry.answer))
        known.add([question])
        return cls(encode, known)

    def compare(self, live: LiveAnswer, own: Outcome, *, total_ms: float | None) -> Comparison:
        """Compare the shadow's answer."""
        text = own.output_text
        theirs, tokens = self.encode(live.output_text), self.encode(text)
        return Comparison(
            live_revision=live.revision,
            equal=live.output_text == text,
            same_chars=_same_share(live.output_text, text),
            same_tokens=_same_share(theirs, tokens),
            score=SequenceMatcher(None, theirs, tokens, autojunk=False).ratio(),
            live_unfounded=live.replaced + len(self.known.foreign(live.output_text)),
            unfounded=len(own.replaced) + len(self.known.foreign(text)),
            live_tokens=live.output_tokens,
            tokens=own.usage.output_tokens,
            live_ttft_ms=live.ttft_ms,
            live_total_ms=live.total_ms,
            total_ms=total_ms,
        )


def _same_share(one: Sequence[object], other: Sequence[object]) -> float:
    """Return the part before the first difference, as a share of the longer."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return same / max(len(one), len(other)) if one or other else 1.0
