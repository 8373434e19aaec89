"""What Redis keeps, in memory: turns, hand-offs, and the KV of the last turn."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.conversation.handoffs import Handoff
from shared.conversation.turn import Turn
from shared.wire.session_key import SessionKey
from workers.engine.kv_pieces import KvPieces
from workers.schedule.prefixes import common_length
from workers.schedule.sequence import Prefix
from workers.schedule.sequence import Sequence as TokenSequence


@dataclass(repr=False)
class Redis:
    """Turns, and the generations of conversations."""

    said: dict[str, list[Turn]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)

    async def turns(self, session: SessionKey, *, before_unix_ms: float, **_: object) -> list[Turn]:
        await asyncio.sleep(0)
        return [turn for turn in self.said.get(session.session_id, ()) if turn.asked_unix_ms < before_unix_ms]

    def remember(self, session: SessionKey, turn: Turn) -> None:
        self.said.setdefault(session.session_id, []).append(turn)

    async def generation(self, session: SessionKey) -> int | None:
        await asyncio.sleep(0)
        return self.generations.get(session.session_id, 0)

    async def delete(self, session: SessionKey, *, generation: int) -> int:
        await asyncio.sleep(0)
        self.generations[session.session_id] = max(self.generations.get(session.session_id, 0) + 1, generation)
        self.said.pop(session.session_id, None)
        return self.generations[session.session_id]

    def forget(self, session: SessionKey, generation: int) -> None: ...


@dataclass(repr=False)
class HandoffRedis:
    kept: dict[SessionKey, Handoff] = field(default_factory=dict)

    async def find(self, session: SessionKey) -> Handoff | None:
        await asyncio.sleep(0)
        return self.kept.get(session)

    async def generation(self, _: SessionKey) -> int:
        await asyncio.sleep(0)
        return 0

    async def put(self, handoff: Handoff, *, generation: int, open_s: float) -> bool:
        del generation, open_s
        await asyncio.sleep(0)
        self.kept[handoff.session] = handoff
        return True


@dataclass(repr=False)
class KvMemory:
    """The KV of each conversation's last turn, from its first token on."""

    kept: dict[SessionKey, tuple[list[int], NDArray[Any]]] = field(default_factory=dict)

    async def find(self, sequence: TokenSequence, **_: object) -> Prefix:
        await asyncio.sleep(0)
        ids, values = self.kept.get(sequence.session, ([], np.empty(0)))
        num_tokens = min(common_length(sequence.prompt_ids, ids), len(sequence.prompt_ids) - 1)
        if num_tokens <= 0:
            return Prefix()
        return Prefix(num_tokens=num_tokens, values=KvPieces((values[:, :, :, :num_tokens],)))

    def keep(self, sequence: TokenSequence, start: int, values: NDArray[Any]) -> None:
        assert start == 0
        ids = [*sequence.prompt_ids, *sequence.output_ids][: values.shape[3]]
        self.kept[sequence.session] = ids, values

    def erase(self, session: SessionKey, generation: int) -> None:
        del generation
        self.kept.pop(session, None)
