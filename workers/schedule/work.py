"""The size of an engine call in the quantities of the cost formulas (`workers/schedule/costs.py`): numbers of rows,
tokens and tokens of context. Pure."""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct

from workers.engine import DecodeRow, PrefillChunk


class Work(Struct, frozen=True, kw_only=True, gc=False):
    """The work of a call.

    Attributes:
        rows: number of decode rows.
        context: tokens that these rows hold together.
        tokens: prompt tokens, including padding.
        past: tokens before them in their slots.
        pairs: number of tokens that each prompt token attends to, summed.
    """

    rows: int = 0
    context: int = 0
    tokens: int = 0
    past: int = 0
    pairs: float = 0.0

    @classmethod
    def of_rows(cls, rows: Sequence[DecodeRow]) -> Self:
        """Return the work of a decode call."""
        return cls(rows=len(rows), context=sum([row.past for row in rows]))

    @classmethod
    def of_prompt(cls, tokens: int, *, past: int = 0, rows: int = 1) -> Self:
        """Return the work of `tokens` over all `rows` of a prefill call, each with `past` tokens in its slot."""
        return cls(tokens=tokens, past=past, pairs=tokens * (past + tokens / (2 * rows)))

    @classmethod
    def of_mixed(cls, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> Self:
        """Return the work of a mixed call, which has no padding. Proposed tokens are computed as a prompt's."""
        work = cls.of_rows(rows)
        for row in rows:
            if row.proposed:
                work = work.joined(len(row.proposed), row.past + 1)
        for chunk in chunks:
            work = work.joined(len(chunk.token_ids), chunk.past)
        return work

    def joined(self, tokens: int, past: int) -> Self:
        """Return the work with `tokens` more of another prompt, which has `past` tokens in its slot."""
        return type(self)(
            rows=self.rows,
            context=self.context,
            tokens=self.tokens + tokens,
            past=self.past + past,
            pairs=self.pairs + tokens * (past + tokens / 2),
        )

    def lengthened(self, tokens: int, past: int) -> Self:
        """Return the work with one more token of a prompt that has `tokens` in it, and `past` tokens in its slot."""
        return type(self)(
            rows=self.rows,
            context=self.context,
            tokens=self.tokens + 1,
            past=self.past + (0 if tokens else past),
            pairs=self.pairs + past + tokens + 0.5,
        )

    @classmethod
    def of_rectangle(cls, chunks: Sequence[PrefillChunk]) -> Self:
        """Return the work of a prefill call, in which shorter rows are padded to the longest."""
        tokens = len(chunks) * max([len(chunk.token_ids) for chunk in chunks])
        return cls.of_prompt(tokens, past=chunks[0].past, rows=len(chunks))
