"""Save a sequence's KV after its end: encoded into host memory, then to Redis what is not there. On one thread."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from shared.telemetry import metrics
from workers.kv.blocks import BlockNamer
from workers.kv.memory import ConversationTokens, KvMemory
from workers.kv.store import KvStore
from workers.kv.values import Codec, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSaver:
    """`store` is this thread's own."""

    codec: Codec
    namer: BlockNamer
    memory: KvMemory
    store: KvStore

    def save(self, tokens: ConversationTokens, start: int, values: NDArray[Any], in_memory: Callable[[], None]) -> None:
        """Save the KV of the tokens from `start`; `in_memory` is called before Redis is asked. Raises
        `StoreUnavailable`."""
        session = tokens.session
        chain = self.namer.chain(session, tokens.ids, tokens.shared)
        encoded: dict[bytes, bytes] = {}
        for block in chain.blocks:
            if block.start >= start and not self.memory.has(block.name):
                part = values[:, :, :, block.start - start : block.stop - start]
                try:
                    encoded[block.name] = encode(part, self.codec, name=block.name)
                except ValueError:
                    metrics.kv_dropped.labels("not_finite").inc()
                    break
                self.memory.put(tokens, block, encoded[block.name])
        in_memory()
        if not self.store.available or self.memory.is_erased(tokens):
            return
        held = self.store.ask(session, [block.name for block in chain.blocks if block.shared])
        missing = chain.missing(held.session_names | held.shared_names)
        kept = self.memory.values(block for block in missing if block.name not in encoded) | encoded
        own = {block.name: kept[block.name] for block in missing if block.name in kept and not block.shared}
        shared = {block.name: kept[block.name] for block in missing if block.name in kept and block.shared}
        saved = self.store.save(
            session, own, drop=chain.stale(held.session_names), shared=shared, generation=tokens.generation
        )
        metrics.kv_bytes.labels("save").inc(sum(map(len, own.values())) + sum(map(len, shared.values())))
        if saved is None:  # erased before this process could hear of it
            self.memory.drop(session)
