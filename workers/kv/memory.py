"""The host memory and disk for KV, shared by the threads that load and save. Erased conversations are not stored
again."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shared.conversation.erasures import Erasures
from shared.process.clock import now_unix_ms
from shared.telemetry import metrics
from shared.wire.session_key import SessionKey
from workers.kv.blocks import Block, BlockChain
from workers.kv.disk import DiskTier, StoredBlock
from workers.kv.host import HostCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationTokens:
    """A conversation's tokens in one generation. The first `shared` tokens contain no customer's text."""

    session: SessionKey
    ids: Sequence[int]
    shared: int
    generation: int


class KvMemory:
    """Blocks by name, usable on any thread. Blocks evicted from memory go to `disk` if there is one."""

    def __init__(self, *, max_bytes: int, ttl_s: float, disk: DiskTier | None = None) -> None:
        self._host: HostCache[bytes] = HostCache(max_bytes=max_bytes, ttl_s=ttl_s, evicted=self._evict)
        self._disk = disk
        self._spilled: list[tuple[StoredBlock, bytes]] = []
        self._lock = threading.Lock()
        self._erasures = Erasures()
        self.max_bytes = max_bytes

    def has(self, name: bytes) -> bool:
        with self._lock:
            return name in self._host or (self._disk is not None and name in self._disk)

    def longest_run(self, chain: BlockChain) -> tuple[tuple[Block, ...], dict[bytes, bytes], frozenset[bytes]]:
        """Return the first blocks of a chain that are stored here.

        Returns:
            The blocks, the values of those that have not expired, and the names of those from memory; the others came
            from
            disk and must be checked.
        """
        with self._lock:
            run = chain.longest_run(self._host if self._disk is None else _Either(self._host, self._disk)).blocks
            values, stored = self._values(run)
        in_memory = frozenset(values)
        return run, values | self._read(stored), in_memory

    def values(self, blocks: Iterable[Block]) -> dict[bytes, bytes]:
        """Return the values of the stored blocks by name."""
        with self._lock:
            values, stored = self._values(blocks)
        return values | self._read(stored)

    def put(self, tokens: ConversationTokens, block: Block, value: bytes) -> None:
        """Store a block, unless its conversation's generation was erased. Shared blocks contain no conversation's
        text."""
        session = tokens.session
        with self._lock:
            if block.shared or not self._is_erased(tokens):
                self._host.put(block.name, value, session.tenant if block.shared else _owner(session), now_unix_ms())
                metrics.kv_host_bytes.set(self._host.num_bytes)
            spilled, self._spilled = self._spilled, []
        for place, evicted in spilled:
            self._write(place, evicted)

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget a conversation's earlier generations."""
        with self._lock:
            self._erasures.add(session, generation, now_unix_ms())
            self._forget(session)
            metrics.kv_host_bytes.set(self._host.num_bytes)

    def drop(self, session: SessionKey) -> None:
        """Forget a conversation whose erasure this process has not received yet."""
        with self._lock:
            self._forget(session)

    def close(self) -> None:
        """Remove the files on disk."""
        if self._disk is not None:
            self._disk.close()

    def is_erased(self, tokens: ConversationTokens) -> bool:
        with self._lock:
            return self._is_erased(tokens)

    def _is_erased(self, tokens: ConversationTokens) -> bool:
        return self._erasures.erased(tokens.session, tokens.generation, now_unix_ms())

    def _values(self, blocks: Iterable[Block]) -> tuple[dict[bytes, bytes], dict[bytes, StoredBlock]]:
        """Return the values in memory, and the files of the others."""
        now = now_unix_ms()
        found = {block.name: self._host.get(block.name, now) for block in blocks}
        values = {name: value for name, value in found.items() if value is not None}
        absent = found.keys() - values.keys()
        return values, {} if self._disk is None else self._disk.find(absent, now)

    def _forget(self, session: SessionKey) -> None:
        self._host.erase(_owner(session))
        if self._disk is not None:
            self._disk.erase(_owner(session))

    def _evict(self, name: bytes, value: bytes, owner: str) -> None:
        if self._disk is not None and name not in self._disk:
            self._spilled.append((self._disk.keep(name, value, owner, now_unix_ms()), value))

    def _write(self, place: StoredBlock, value: bytes) -> None:
        """Write an evicted block; remove its file again if it was erased in the meantime."""
        assert self._disk is not None
        self._disk.write(place, value)
        with self._lock:
            gone = bytes.fromhex(place.path.name) not in self._disk
        if gone:
            place.path.unlink(missing_ok=True)

    def _read(self, stored: Mapping[bytes, StoredBlock]) -> dict[bytes, bytes]:
        if self._disk is None:
            return {}
        found = {name: self._disk.read(place) for name, place in stored.items()}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Either:
    """The blocks in memory or on disk."""

    host: HostCache[bytes]
    disk: DiskTier

    def __contains__(self, name: object) -> bool:
        return name in self.host or name in self.disk


def _owner(session: SessionKey) -> str:
    return f"{session.tenant}/{session.session_id}"
