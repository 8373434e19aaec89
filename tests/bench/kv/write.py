"""What each turn writes to Redis: whole conversations one after the other, the counters read after every turn.

New tokens of a turn: those of its prompt that the worker computed (they were not there before, or recomputing them was
cheaper than loading), and those of its answer. Written: the bytes of the values, by the worker's own counter.
"""

from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console

from ops.measure.runner import progress_bar
from ops.texts.conversations import Conversation
from tests.bench.kv.client import Talk
from tests.bench.kv.counters import PROMPT_TOKENS, WRITTEN_BYTES, grown
from tests.bench.kv.ratios import Written, rounded, write_ratio, write_saved
from tests.bench.kv.system import Side


class WriteRow(Struct, frozen=True, kw_only=True):
    """The same turn of all conversations, on average; `turn` is None for all turns together."""

    turn: int | None
    turns: int
    session_tokens: float
    new_tokens: float
    written_bytes: float
    ratio: float | None
    saved: float | None


async def measure_writes(
    side: Side, conversations: Sequence[Conversation], *, max_output_tokens: int, console: Console
) -> list[Written]:
    """Nothing where the worker does not count what it writes. Raises `ConnectFailed`."""
    done: list[Written] = []
    before = await side.settled_counters()
    if WRITTEN_BYTES not in before:
        return []
    with progress_bar(console, "bytes written: turns", sum(len(one.turns) for one in conversations)) as progress:
        for conversation in conversations:
            async with Talk(side.url, conversation) as talk:
                for turn in range(1, len(conversation.turns) + 1):
                    answer = await talk.ask(turn, max_output_tokens)
                    after = await side.settled_counters()
                    counted, before = grown(before, after), after
                    done.append(
                        Written(
                            turn=turn,
                            new_tokens=int(counted[PROMPT_TOKENS]) + answer.output_tokens,
                            session_tokens=answer.context_tokens,
                            num_bytes=counted[WRITTEN_BYTES],
                        )
                    )
                    progress(len(done))
    return done


def rows_of(written: Sequence[Written], token_bytes: int) -> list[WriteRow]:
    """One a turn, then all of them."""
    rows = [
        _row(turn, [one for one in written if one.turn == turn], token_bytes)
        for turn in sorted({one.turn for one in written})
    ]
    return [*rows, _row(None, written, token_bytes)] if rows else []


def _row(turn: int | None, written: Sequence[Written], token_bytes: int) -> WriteRow:
    return WriteRow(
        turn=turn,
        turns=len(written),
        session_tokens=round(sum(one.session_tokens for one in written) / len(written), 1),
        new_tokens=round(sum(one.new_tokens for one in written) / len(written), 1),
        written_bytes=round(sum(one.num_bytes for one in written) / len(written)),
        ratio=rounded(write_ratio(written, token_bytes)),
        saved=rounded(write_saved(written, token_bytes)),
    )
