"""The host memory for KV, as the threads that load and save share it; what was erased is not put into it again."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.conversation.erasures import Erasures
from shared.process.clock import now_unix_ms
from shared.telemetry import metrics
from shared.wire.session_key import SessionKey
from workers.kv.blocks import Block, BlockChain
from workers.kv.host import HostCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationTokens:
    """Tokens of a conversation in one of its generations; the first `shared` hold no customer's words."""

    session: SessionKey
    ids: Sequence[int]
    shared: int
    generation: int


class KvMemory:
    """Blocks by name; may be used on any thread."""

    def __init__(self, host: HostCache) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._erasures = Erasures()
        self.max_bytes = host.max_bytes

    def has(self, name: bytes) -> bool:
        with self._lock:
            return name in self._host

    def longest_run(self, chain: BlockChain) -> tuple[tuple[Block, ...], dict[bytes, bytes]]:
        """Return the first blocks of a chain that are here, and the values of those that have not expired."""
        with self._lock:
            run = chain.longest_run(self._host).blocks
            return run, self._values(run)

    def values(self, blocks: Iterable[Block]) -> dict[bytes, bytes]:
        """Return the values of the blocks that are here, by name."""
        with self._lock:
            return self._values(blocks)

    def put(self, tokens: ConversationTokens, block: Block, value: bytes) -> None:
        """Keep a block, unless its conversation's generation was erased; shared blocks hold nothing of it."""
        session = tokens.session
        with self._lock:
            if block.shared or not self._is_erased(tokens):
                self._host.put(block.name, value, session.tenant if block.shared else _owner(session), now_unix_ms())
                metrics.kv_host_bytes.set(self._host.num_bytes)

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget a conversation's earlier generations."""
        with self._lock:
            self._erasures.add(session, generation, now_unix_ms())
            self._host.erase(_owner(session))
            metrics.kv_host_bytes.set(self._host.num_bytes)

    def drop(self, session: SessionKey) -> None:
        """Forget a conversation whose erasure this process has not heard of yet."""
        with self._lock:
            self._host.erase(_owner(session))

    def is_erased(self, tokens: ConversationTokens) -> bool:
        with self._lock:
            return self._is_erased(tokens)

    def _is_erased(self, tokens: ConversationTokens) -> bool:
        return self._erasures.erased(tokens.session, tokens.generation, now_unix_ms())

    def _values(self, blocks: Iterable[Block]) -> dict[bytes, bytes]:
        now = now_unix_ms()
        found = {block.name: self._host.get(block.name, now) for block in blocks}
        return {name: value for name, value in found.items() if value is not None}


def _owner(session: SessionKey) -> str:
    return f"{session.tenant}/{session.session_id}"
