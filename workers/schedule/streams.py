"""The requests that upstreams compute, each a stream of text pieces. Pure.

The policy is the same as for an engine's slots: requests that can still meet their deadlines start in deadline order,
the others are given up. The duration of a piece is learned from earlier ones.
"""

from dataclasses import dataclass, field
from typing import Final

from workers.schedule.costs import CostModel, Law
from workers.schedule.roster import Roster
from workers.schedule.sequence import Phase, Sequence
from workers.schedule.work import Work

_EVERY: Final = 16
"""Number of pieces of a stream that are measured together."""
_TOGETHER: Final = 0.25
"""First texts closer together than this share of a prompt's duration count as simultaneous."""
_LEAST: Final = 0.25
"""A piece takes at least this share of the elapsed time."""


@dataclass(slots=True)
class Pace:
    """One stream's pieces, and the start of the current measurement; `prompts_ms` is the time of all prompts before
    it."""

    since_s: float
    pieces: int = 0
    prompts_ms: float = 0.0


@dataclass(slots=True)
class _Firsts:
    """An upstream's first texts: the time of the last one, and the duration of those that came together with it."""

    last_s: float = float("-inf")
    took_ms: float = 0.0
    together: int = 0


@dataclass(slots=True)
class Paces:
    """Learns the duration of a prompt and of a token from when an upstream's text arrives. Times are monotonic seconds.

    The forecast plans as for an engine that computes one prompt after another between decode steps
    (`goodput/forecast.py`). So a prompt takes the time since it was sent or since another's first text, the later of
    both; first texts that come together share that time. A piece takes the elapsed time less that of the prompts in
    between.
    """

    costs: CostModel
    _firsts: dict[str, _Firsts] = field(default_factory=dict)
    _prompts_ms: float = 0.0

    def heard(self, pace: Pace, address: str, now_s: float, *, prompt_tokens: int, rows: int) -> None:
        """Record a piece from an upstream that writes `rows` streams."""
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


# before anything is learned; the first answers adjust the pace
PRIOR_DECODE: Final = Law((15.0, 1.0, 0.0), error=1.0)
PRIOR_PREFILL: Final = Law((50.0, 0.3, 0.0, 0.0), error=1.0)
UNKNOWN_ID: Final = -1
"""A token of which only the text is known."""


class Streams(Roster):
    """The roster of streams. `output_ids` counts pieces; at the end it counts tokens, if the upstream reported them."""

    def next(self, now_unix_ms: float) -> Sequence | None:
        """Return the next sequence to send to an upstream; None if none should be sent now."""
        if not self._waiting or not self._load.free:
            return None
        sequence = self._policy.admit(now_unix_ms, self._load)
        if sequence is not None:
            self._run(sequence, now_unix_ms)
        return sequence

    def hopeless(self, back_unix_ms: float) -> list[Sequence]:
        """Remove and return the sequences whose first text is due before any upstream is back."""
        late = [each for each in self._waiting.values() if each.deadline.first_token_unix_ms <= back_unix_ms]
        for sequence in late:
            self._remove(sequence, missed=True)
        return late

    def grew(self, sequence: Sequence, now_unix_ms: float, *, visible: bool = True) -> None:
        """Record a piece of text. `visible`: False for a thought, which the customer does not see."""
        sequence.output_ids.append(UNKNOWN_ID)
        if sequence.phase is Phase.PREFILL:
            sequence.enter(Phase.DECODE)
            sequence.first_token_unix_ms = now_unix_ms
            if visible and not sequence.held:
                self.shown(sequence, now_unix_ms)

    def counted(self, sequence: Sequence, *, prompt: int, cached: int, output: int) -> None:
        """Record the numbers of tokens that the upstream reported."""
        sequence.prompt_ids = range(prompt)
        sequence.prefix.restored = cached
        sequence.output_ids = [UNKNOWN_ID] * output

    def cut(self, sequence: Sequence) -> None:
        """End a sequence that reached its token limit."""
        self._remove(sequence)

    def missed(self, sequence: Sequence) -> None:
        """End a sequence that no upstream could answer."""
        self._remove(sequence, missed=True)
