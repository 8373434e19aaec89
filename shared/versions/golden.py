"""Golden prompts: fixed questions, stored with the tokens that a model version generated for them when it was added to
the registry. A worker that loads the version repeats them to find out whether it computes the same. Pure.

On another processor or in another precision a token may differ because of rounding, and all tokens after it as well. So
only the tokens before the first difference are counted, over all prompts, and their share must reach a limit.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

LEAST_AGREEMENT: Final = 0.8
"""So much of the golden tokens a version is to give again before it serves. Another model gives next to none."""


class Golden(Struct, frozen=True, kw_only=True):
    """A prompt as tokens, and the tokens of the greedy answer to it."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]

    def agreed(self, output_ids: Sequence[int]) -> int:
        """Return how many tokens come before the first that differs."""
        pairs = enumerate(zip(self.output_ids, output_ids, strict=False))
        shorter = min(len(self.output_ids), len(output_ids))
        return next((at for at, (ours, theirs) in pairs if ours != theirs), shorter)


class GoldenSet(Struct, frozen=True, kw_only=True):
    """A version's golden prompts, and what answered them."""

    engine: str
    prompts: tuple[Golden, ...]

    def agreement(self, answers: Sequence[Sequence[int]]) -> float:
        """Return the share of the golden tokens that these answers give again, prompt by prompt; 0 if
        there is no golden token."""
        wanted = sum(len(golden.output_ids) for golden in self.prompts)
        agreed = sum(golden.agreed(answer) for golden, answer in zip(self.prompts, answers, strict=True))
        return agreed / wanted if wanted else 0.0

    def failure(self, answers: Sequence[Sequence[int]]) -> str | None:
        """Return why these are not the version's answers; None where they are."""
        agreement = self.agreement(answers)
        if agreement >= LEAST_AGREEMENT:
            return None
        return f"golden prompts: {agreement:.2f} of the tokens agree, {LEAST_AGREEMENT} are needed"
