"""The first token of turn 5 at about 1,000 tokens of context: recomputed, or with the cache in each of its levels.

Recomputed: the worker without the cache, whose history is given the same four turns beforehand, as the other one
remembers them, so that both prompts are equal token for token. From the slot: right after turn 4. From host memory:
other conversations have used the slots since. From Redis: the worker that answered turns 1 to 4 has ended, another one
has started.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, Literal

from msgspec import Struct
from rich.console import Console

from ops.measure.runner import progress_bar
from ops.stack.processes import ServiceError
from ops.texts.conversations import Conversation
from shared.conversation.history import History
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from tests.bench.kv.client import Answered, Talk
from tests.bench.kv.counters import grown
from tests.bench.kv.ratios import answer_room, middle, ratio
from tests.bench.kv.system import HISTORY_TIMEOUT_MS, Pair, Side

Level = Literal["slot", "host", "redis"]
Count = Callable[[str], int]

TURN: Final = 5
_OPENING_TOKENS: Final = 250  # system text and FAQ entries, before the first prompt has told
_FRAME_TOKENS: Final = 12  # of the chat template, a question and its answer
_LEAST_ANSWER, _MOST_ANSWER = 16, 256
_ANSWER_TOKENS: Final = 16
_ALL_TURNS: Final = 50
_PAUSE_S: Final = 0.2  # a customer reads before writing: so long an answer's KV has to be stored


class Cell(Struct, frozen=True, kw_only=True):
    """Turn 5 of each conversation from one level, and recomputed right beside it; in the same order.

    `same_text`: of how many the first tokens of the answer are the same. `cache`: the worker's counters meanwhile."""

    level: Level
    ttft_ms: list[float | None]
    prefill_ms: list[float | None]
    prompt_tokens: list[int]
    cached_tokens: list[int]
    recomputed_ttft_ms: list[float | None]
    recomputed_prefill_ms: list[float | None]
    recomputed_prompt_tokens: list[int]
    same_text: int
    not_by_model: int
    cache: dict[str, float]

    @property
    def ratio(self) -> float | None:
        """Of the medians, as the client sees it."""
        return ratio(middle(self.ttft_ms), middle(self.recomputed_ttft_ms))

    @property
    def prefill_ratio(self) -> float | None:
        return ratio(middle(self.prefill_ms), middle(self.recomputed_prefill_ms))


def cell_of(level: Level, pairs: Sequence[tuple[Answered, Answered]], cache: dict[str, float]) -> Cell:
    """`pairs`: (from that level, recomputed)."""
    return Cell(
        level=level,
        ttft_ms=[_tenth(one.ttft_ms) for one, _ in pairs],
        prefill_ms=[_tenth(one.prefill_ms) for one, _ in pairs],
        prompt_tokens=[one.prompt_tokens for one, _ in pairs],
        cached_tokens=[one.cached_tokens for one, _ in pairs],
        recomputed_ttft_ms=[_tenth(two.ttft_ms) for _, two in pairs],
        recomputed_prefill_ms=[_tenth(two.prefill_ms) for _, two in pairs],
        recomputed_prompt_tokens=[two.prompt_tokens for _, two in pairs],
        same_text=sum(one.text == two.text for one, two in pairs),
        not_by_model=sum(not (one.by_model and two.by_model) for one, two in pairs),
        cache=cache,
    )


async def measure_ttft(
    settings: Settings,
    pair: Pair,
    conversations: Sequence[Conversation],
    *,
    context_tokens: int,
    slots: int,
    count: Count,
    console: Console,
) -> list[Cell]:
    """Turn 5 at about `context_tokens`; `slots` are those of each worker. Raises `ConnectFailed`, `ServiceError`."""
    told, seeds = [
        History(settings.redis.model_copy(update={"url": side.redis.url, "timeout_ms": HISTORY_TIMEOUT_MS}))
        for side in (pair.on, pair.off)
    ]
    steps = len(conversations) * (3 * TURN + 2)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(told.close)
        stack.push_async_callback(seeds.close)
        progress = stack.enter_context(progress_bar(console, f"TTFT of turn {TURN}", steps))
        run = _Run(pair, told, seeds, settings.tenant, context_tokens, slots, count, progress)
        for_host = [await stack.enter_async_context(Talk(pair.on.url, one)) for one in conversations]
        for_redis = [await stack.enter_async_context(Talk(pair.on.url, one)) for one in conversations]
        await run.lead_up(for_host)
        await run.lead_up(for_redis)
        await pair.on.warm_up(slots)  # every slot is another conversation's now
        slot, host = await run.warm(conversations, for_host)
        await pair.on.settled_counters()
        await pair.on.restart_worker()
        await pair.on.warm_up(slots)
        return [slot, host, await run.elsewhere(for_redis)]


class _Run:
    def __init__(
        self,
        pair: Pair,
        told: History,
        seeds: History,
        tenant: str,
        context_tokens: int,
        slots: int,
        count: Count,
        progress: Callable[[int], None],
    ) -> None:
        self._pair = pair
        self._told = told
        self._seeds = seeds
        self._tenant = tenant
        self._context_tokens = context_tokens
        self._slots = slots
        self._count = count
        self._progress = progress
        self._asked = 0

    async def lead_up(self, talks: Sequence[Talk]) -> None:
        """Turns 1 to 4 of all, as many at once as there are slots."""
        free = asyncio.Semaphore(self._slots)

        async def one(talk: Talk) -> None:
            async with free:
                await self._first_turns(talk, pause_s=0.0)

        await asyncio.gather(*(one(talk) for talk in talks))

    async def warm(self, conversations: Sequence[Conversation], for_host: Sequence[Talk]) -> tuple[Cell, Cell]:
        on = self._pair.on
        slot: list[tuple[Answered, Answered]] = []
        host: list[tuple[Answered, Answered]] = []
        from_slot: list[dict[str, float]] = []
        from_host: list[dict[str, float]] = []
        for conversation, kept in zip(conversations, for_host, strict=True):
            async with Talk(on.url, conversation) as talk:
                await self._first_turns(talk, pause_s=_PAUSE_S)
                before = await on.settled_counters()
                answer = await self._last_turn(talk)
                between = await on.settled_counters()
            slot.append((answer, await self._recomputed(talk)))
            host.append((await self._last_turn(kept), await self._recomputed(kept)))
            from_slot.append(grown(before, between))
            from_host.append(grown(between, await on.settled_counters()))
        return cell_of("slot", slot, _sum(from_slot)), cell_of("host", host, _sum(from_host))

    async def elsewhere(self, talks: Sequence[Talk]) -> Cell:
        before = await self._pair.on.counters()
        pairs = [(await self._last_turn(talk), await self._recomputed(talk)) for talk in talks]
        return cell_of("redis", pairs, grown(before, await self._pair.on.settled_counters()))

    async def _first_turns(self, talk: Talk, *, pause_s: float) -> None:
        turns = talk.conversation.turns
        used = _OPENING_TOKENS
        for turn in range(1, TURN):
            ahead = sum(self._count(text) + _FRAME_TOKENS for text in turns[turn - 1 : TURN])
            room = answer_room(
                target=self._context_tokens,
                used=used,
                to_be_asked=ahead,
                answers=TURN - turn,
                least=_LEAST_ANSWER,
                most=_MOST_ANSWER,
            )
            used = (await talk.ask(turn, room)).context_tokens
            self._tell()
            await asyncio.sleep(pause_s)

    async def _last_turn(self, talk: Talk) -> Answered:
        answer = await talk.ask(TURN, _ANSWER_TOKENS)
        self._tell()
        return answer

    async def _recomputed(self, talk: Talk) -> Answered:
        """The same turn after the same turns, without the cache. Raises `ServiceError` where Redis keeps none."""
        off: Side = self._pair.off
        session_id = f"bench-{secrets.token_hex(8)}"
        turns = await self._told.turns(self._tenant, talk.session_id, limit=_ALL_TURNS, before_unix_ms=now_unix_ms())
        for turn in turns[: TURN - 1]:
            if not await self._seeds.append(self._tenant, session_id, turn):
                raise ServiceError("the bench's own Redis does not answer; measure again on a quieter machine")
        async with Talk(off.url, talk.conversation, session_id=session_id) as again:
            return await self._last_turn(again)

    def _tell(self) -> None:
        self._asked += 1
        self._progress(self._asked)


def _sum(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    names = {name: None for part in parts for name in part}
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def _tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
