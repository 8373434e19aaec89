"""The same conversations with Redis in trouble, with the cache and without: what the cache costs when it cannot help.

Slow: every byte to and from Redis is 50 ms late. Down: Redis is killed. Both systems have the same trouble, so both
have the same history (none while Redis is down): it is the cache alone that differs.
"""

from collections.abc import Sequence
from typing import Final, Literal

from rich.console import Console

from ops.texts.conversations import Conversation
from tests.bench.kv.system import Pair
from tests.bench.kv.whole import WholeRound, parts, run_round

Trouble = Literal["slow", "down"]

ONE_WAY_S: Final = 0.05


async def measure_outage(
    pair: Pair,
    trouble: Trouble,
    conversations: Sequence[Conversation],
    *,
    clients: int,
    rounds: int,
    max_output_tokens: int,
    most_turns: int,
    console: Console,
) -> list[WholeRound]:
    """`pair` stands behind proxies. Who is down stays down: measure `slow` first. Raises `ConnectFailed`."""
    for side in (pair.on, pair.off):
        if trouble == "slow":
            side.slow_redis(ONE_WAY_S)
        else:
            await side.kill_redis()
    done: list[WholeRound] = []
    for number, part in enumerate(parts(conversations, rounds)):
        console.print(f"Redis {trouble}: round {number + 1} of {rounds}")
        done.append(
            await run_round(
                pair,
                number,
                part,
                clients=clients,
                max_output_tokens=max_output_tokens,
                most_turns=most_turns,
                console=console,
            )
        )
    return done
