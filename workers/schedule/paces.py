"""Learn from when an upstream's text comes what a prompt and a token take it. Pure.

The forecast plans as for an engine that computes one prompt after the other, between the steps of those that write
(`policies/forecast.py`). So a prompt takes what passed since it was sent or, if that was later, since the first text
of another; first texts that come together share that time. And a piece takes what passed less the prompts between.
"""

from dataclasses import dataclass, field
from typing import Final

from workers.schedule.costs import CostModel
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
    """All streams of a worker. Times are seconds of one monotonic clock."""

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
