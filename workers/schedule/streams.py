"""The roster of requests that an upstream computes, each a stream of pieces of text. Pure.

By the same policy as an engine's slots: requests that can still be met start by deadline, the others are given up, and
the time of a piece is learned from those that came.
"""

from typing import Final

from workers.schedule.costs import Law
from workers.schedule.roster import Roster
from workers.schedule.sequence import Phase, Sequence

# Before anything is learned; from the first answers on their pace says how it is.
PRIOR_DECODE: Final = Law((15.0, 1.0, 0.0), error=1.0)
PRIOR_PREFILL: Final = Law((50.0, 0.3, 0.0, 0.0), error=1.0)
UNKNOWN_ID: Final = -1
"""A token of which nothing but the text is known."""


class Streams(Roster):
    """`output_ids` counts the pieces; at the end the tokens, where the upstream told of them."""

    def next(self, now_unix_ms: float) -> Sequence | None:
        """Return the next to be sent to an upstream; None if none is to be sent now."""
        if not self._waiting or not self._load.free:
            return None
        sequence = self._policy.admit(now_unix_ms, self._load)
        if sequence is not None:
            self._run(sequence, now_unix_ms)
        return sequence

    def hopeless(self, back_unix_ms: float) -> list[Sequence]:
        """Take out those whose first text is due before any upstream is back."""
        late = [each for each in self._waiting.values() if each.deadline.first_token_unix_ms <= back_unix_ms]
        for sequence in late:
            self._remove(sequence, missed=True)
        return late

    def grew(self, sequence: Sequence, now_unix_ms: float, *, visible: bool = True) -> None:
        """Note that a piece of text came; not `visible`: of a thought, which shows the customer nothing."""
        sequence.output_ids.append(UNKNOWN_ID)
        if sequence.phase is Phase.PREFILL:
            sequence.enter(Phase.DECODE)
            sequence.first_token_unix_ms = now_unix_ms
            if visible and not sequence.held:
                self.shown(sequence, now_unix_ms)

    def counted(self, sequence: Sequence, *, prompt: int, cached: int, output: int) -> None:
        """Note how many tokens there were, by an upstream that can be believed."""
        sequence.prompt_ids = range(prompt)
        sequence.prefix.restored = cached
        sequence.output_ids = [UNKNOWN_ID] * output

    def cut(self, sequence: Sequence) -> None:
        """End one that has written all that it may."""
        self._remove(sequence)

    def missed(self, sequence: Sequence) -> None:
        """End one that no upstream could answer."""
        self._remove(sequence, missed=True)
