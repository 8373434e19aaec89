"""The prompts that a worker computed in conversations, token by token: built again by its own builder, of what the
history in Redis holds, and checked against what it counted."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from msgspec import Struct

from ops.stack.processes import ServiceError
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.model.chat_template import ChatTemplate
from shared.model.folder import ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.settings import Settings
from shared.settings.redis import RedisSettings
from shared.wire.outcome import BY_MODEL
from shared.wire.session_key import SessionKey
from workers.building import ENTRY_TOKENS
from workers.prompt.conversation import BuildPrompt, PromptBudget, PromptBuilder

_REDIS_TIMEOUT_MS: Final = 2_000
_KEPT_WITHIN_S: Final = 5.0
_POLL_S: Final = 0.1


class Asked(Struct, frozen=True, kw_only=True):
    """A prompt, and how many tokens were written to it."""

    ids: list[int]
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a system with these settings and this Redis computed."""

    settings: Settings
    redis_url: str
    max_output_tokens: int

    async def of(self, sessions: Mapping[str, tuple[str, int]]) -> dict[str, list[Asked]]:
        """Return each conversation's, of its session and the number of its turns. Raises `ServiceError`."""
        history = History(RedisSettings(url=self.redis_url, timeout_ms=_REDIS_TIMEOUT_MS))
        model = self.settings.model.dir
        template = ChatTemplate.for_tokenizer(Tokenizer.load(model), ModelFolder.open(model).manifest.chat_template)
        worker = self.settings.worker
        # As `ops.stack.system` has the workers of a bench: of the turns all that fits.
        budget = PromptBudget(ENTRY_TOKENS, worker.max_length)
        build = PromptBuilder(template, system=worker.system_prompt, most_turns=worker.history_turns, budget=budget)
        most = worker.max_length - min(self.max_output_tokens, worker.max_length // 4)  # as the worker has it
        try:
            return {
                name: again(await self._turns(history, session, count), build.build, most)
                for name, (session, count) in sessions.items()
            }
        finally:
            await history.close()

    async def _turns(self, history: History, session: str, count: int) -> list[Turn]:
        """Return them all, as soon as the last one is written."""
        deadline_s = time.monotonic() + _KEPT_WITHIN_S
        key, turns = SessionKey(self.settings.tenant, session), list[Turn]()
        while len(turns) < count and time.monotonic() < deadline_s:
            turns = await history.turns(key, limit=count, before_unix_ms=inf)
            await asyncio.sleep(_POLL_S)
        if len(turns) < count:
            raise ServiceError(f"{len(turns)} of a conversation's {count} turns are in Redis")
        return turns


def again(turns: Sequence[Turn], build: BuildPrompt, most: int) -> list[Asked]:
    """Build the prompt, of at most `most` tokens, of each turn that the model answered. Raises `ServiceError` if the
    worker counted another number of tokens."""
    asked: list[Asked] = []
    for number, turn in enumerate(turns):
        if turn.source not in BY_MODEL:
            continue
        prompt = build(turns=turns[:number], grounding=turn.grounding, question=turn.user, max_tokens=most)
        if len(prompt.ids) != (counted := turn.usage.input_tokens):
            raise ServiceError(f"turn {number + 1}: the worker counted {counted} tokens, not {len(prompt.ids)}")
        asked.append(Asked(ids=list(prompt.ids), new_tokens=turn.usage.output_tokens))
    return asked
