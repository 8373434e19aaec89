"""The roster of requests that an upstream computes, each a stream of pieces of text. Pure.

By the same policy as an engine's slots: requests that can still be met start by deadline, the others are given up, and
the time of a piece is learned from those that came.
"""

from dataclasses import dataclass, field
from typing import Final

from workers.schedule.costs import CostModel, Law
from workers.schedule.roster import Roster
from workers.schedule.sequence import Phase, Sequence
from workers.schedule.work import Work

_EVERY: Final = 16
"""A stream's pieces are measured so many at a time."""
_TOGETHER: Final = 0.25
"""First texts that are nearer than this share of a prompt's time came together."""
_LEAST: Final = 0.25
"""A piece takes at least this share of the time that passed."""


@dataclass(slots=True)
class Pace:
    """A stream: its pieces since it was sent, and since when it is measured, `prompts_ms` of all prompts before."""

    since_s: float
    pieces: int = 0
    prompts_ms: float = 0.0


@dataclass(slots=True)
class _Firsts:
    """An upstream's first texts: when the last came, and what those took that came together with it."""

    last_s: float = float("-inf")
    took_ms: float = 0.0
    together: int = 0


@dataclass(slots=True)
class Paces:
    """Learns from when an upstream's text comes what a prompt and a token take it. Times are seconds of one monotonic
    clock.

    The forecast plans as for an engine that computes one prompt after the other, between the steps of those that write
    (`goodput/forecast.py`). So a prompt takes what passed since it was sent or, if that was later, since the first text
    of another; first texts that come together share that time. A piece takes what passed less the prompts between."""

    costs: CostModel
    _firsts: dict[str, _Firsts] = field(default_factory=dict)
    _prompts_ms: float = 0.0

    def heard(self, pace: Pace, address: str, now_s: float, *, prompt_tokens: int, rows: int) -> None:
        """Learn that a piece came, from an upstream that writes `rows` streams."""
        if not pace.pieces:
            self._first(pace, address, now_s, prompt_tokens)
        elif pace.pieces % _EVERY == 0:
            took_ms = (now_s - pace.since_s) * 1_000
            bare_ms = max(took_ms - (self._prompts_ms - pace.prompts_ms), took_ms * _LEAST)
            self.costs.observe(bare_ms / _EVERY, Work(rows=rows))
            pace.since_s, pace.prompts_ms = now_s, self._prompts_ms
        pace.pieces += 1

    def _first(self, pace: Pace, address: str, now_s: float, prompt_tokens: int) -> None:
        firsts = self._firsts.setdefault(address, _Firsts())
        alone_ms = (now_s - max(pace.since_s, firsts.last_s)) * 1_000
        if firsts.together and alone_ms > _TOGETHER * self.costs.prefill_ms(prompt_tokens):
            self.costs.observe(firsts.took_ms / firsts.together, Work.of_prompt(prompt_tokens))
            firsts.took_ms, firsts.together = 0.0, 0
        firsts.took_ms, firsts.together = firsts.took_ms + alone_ms, firsts.together + 1
        self._prompts_ms += alone_ms
        firsts.last_s = pace.since_s = now_s
        pace.prompts_ms = self._prompts_ms


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
