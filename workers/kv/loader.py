"""Find a prompt's KV in host memory, on disk, or in Redis if loading is faster than computing. On one thread."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ref

from numpy.typing import NDArray

from shared.errors import StoreUnavailable
from shared.process.clock import monotonic_s, now_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey
from workers.engine.kv_layout import KvLayout, KvPieces
from workers.kv.blocks import Block, BlockChain, BlockNamer, unbroken
from workers.kv.gate import LoadGate
from workers.kv.memory import ConversationTokens, KvMemory
from workers.kv.store import KvStore
from workers.kv.values import BadBlock, Codec, decode, value_bytes
from workers.schedule.policy import Costs
from workers.schedule.sequence import Prefix


class HandedOut:
    """Tracks the size of loaded KV that waits for a slot. One thread owns it; the pieces may be freed on any thread."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[tuple[ref[KvPieces], int]] = []

    def add(self, pieces: KvPieces) -> None:
        self._held.append((ref(pieces), pieces.num_bytes))

    def num_bytes(self) -> int:
        """Return the bytes that are still in use. An array that several pieces share counts for each."""
        self._held = [(held, size) for held, size in self._held if held() is not None]
        return sum([size for _, size in self._held])


_LEAST_WAITING_BYTES: Final = 1 << 30  # this much may wait for slots even with a smaller host memory

Coming = Generator[dict[bytes, bytes], None, None]
"""Values by name, a few at a time."""

log = get_logger()


@dataclass(slots=True, kw_only=True)
class KvLoader:
    """Finds KV. `store` belongs to this thread."""

    layout: KvLayout
    codec: Codec
    namer: BlockNamer
    block_tokens: int
    memory: KvMemory
    gate: LoadGate
    store: KvStore
    costs: Costs
    _handed_out: HandedOut = field(default_factory=HandedOut, init=False)
    _logged: set[str] = field(default_factory=set, init=False)

    def find(self, tokens: ConversationTokens, *, first: bool, standing: int) -> Prefix:
        """Return the stored KV of a prompt; see `KvCache.find`."""
        ids = tokens.ids
        chain = self.namer.chain(tokens.session, ids, tokens.shared)
        run, values, here = self.memory.longest_run(chain)
        blocks = unbroken(block for block in run if block.name in values)
        if standing and standing >= (blocks[-1].stop if blocks else 0):
            return Prefix(num_tokens=min(standing, len(ids) - 1), kept=self._in_full_blocks(blocks))
        if self._handed_out.num_bytes() >= max(self.memory.max_bytes, _LEAST_WAITING_BYTES):
            metrics.kv_dropped.labels("waiting").inc()
            return Prefix(kept=self._in_full_blocks(blocks))
        had, local = frozenset(values), blocks
        blocks, coming = self._ask(tokens, chain, blocks, values, first=first)
        pieces = self._decoded(tokens, blocks, values, coming, here)
        if local and local[-1] not in blocks and pieces.num_tokens == local[-1].start:
            # the blocks that should replace the local tail did not arrive
            blocks, pieces = local, self._decoded(tokens, local, values, coming, here)
        blocks = blocks[: len(pieces.arrays)]
        num_tokens = min(pieces.num_tokens, len(ids) - 1)
        if num_tokens <= 0:
            return Prefix()
        self._handed_out.add(pieces)
        first_loaded = next((block.start for block in blocks if block.name not in had), num_tokens)
        return Prefix(
            num_tokens=num_tokens,
            loaded=max(num_tokens - first_loaded, 0),
            kept=self._in_full_blocks(blocks),
            values=pieces,
        )

    def _ask(
        self,
        tokens: ConversationTokens,
        chain: BlockChain,
        blocks: tuple[Block, ...],
        values: dict[bytes, bytes],
        *,
        first: bool,
    ) -> tuple[tuple[Block, ...], Coming]:
        """Return the blocks, extended by blocks in Redis if loading is faster than computing, and the values being
        loaded."""
        have, num_tokens = blocks[-1].stop if blocks else 0, len(tokens.ids)
        shared = [block.name for block in chain.blocks if block.shared and block.name not in values]
        begun = monotonic_s()
        nothing = self._load(tokens.session, (), 0, begun)
        if not self.store.available or (first and not shared):
            return blocks, nothing
        if not self.gate.worth_asking(self._recompute_ms(have, num_tokens), now_unix_ms()):
            return blocks, nothing
        try:
            held = self.store.ask(tokens.session, shared)
        except StoreUnavailable:
            self.gate.observe(1, (monotonic_s() - begun) * 1_000, now_unix_ms())
            return blocks, nothing
        found = chain.longest_run(values.keys() | held.session_names | held.shared_names).blocks
        wanted = [block for block in found if block.name not in values]
        sizes = [self._value_bytes(block) for block in wanted]
        gain_ms = self._recompute_ms(wanted[0].start, wanted[-1].stop) if wanted else 0.0
        decision = self.gate.decide(sizes, gain_ms, now_unix_ms())
        if wanted:
            metrics.kv_time.labels("recompute").observe(decision.recompute_ms / 1_000)
        wanted = wanted[: decision.num_blocks]
        return found, self._load(tokens.session, wanted, sum(sizes[: decision.num_blocks]), begun)

    def _load(self, session: SessionKey, wanted: Sequence[Block], num_bytes: int, begun: float) -> Coming:
        """Yield the values of blocks as they arrive from Redis, and learn the duration of the load including their
        processing."""
        loaded = 0
        try:
            for values in self.store.load(
                session,
                [block.name for block in wanted if not block.shared],
                [block.name for block in wanted if block.shared],
            ):
                loaded += sum(map(len, values.values()))
                yield values
        except StoreUnavailable:
            if not loaded:
                self.gate.observe(num_bytes, (monotonic_s() - begun) * 1_000, now_unix_ms())
        finally:
            if loaded:
                seconds = monotonic_s() - begun
                self.gate.observe(loaded, seconds * 1_000, now_unix_ms())
                metrics.kv_time.labels("load").observe(seconds)
                metrics.kv_bytes.labels("load").inc(loaded)

    def _decoded(
        self,
        tokens: ConversationTokens,
        blocks: tuple[Block, ...],
        values: dict[bytes, bytes],
        coming: Coming,
        here: frozenset[bytes],
    ) -> KvPieces:
        """Return the blocks' tensors, up to the first one that is missing or invalid.

        Each block is checked while Redis sends the next.
        """
        arrays: list[NDArray[Any]] = []
        bad: tuple[Block, str] | None = None
        with closing(coming):
            for block in blocks:
                while block.name not in values and (some := next(coming, None)) is not None:
                    values |= some
                if (value := values.get(block.name)) is None:
                    break
                length, checked = block.stop - block.start, block.name in here
                try:
                    array = decode(value, self.layout, self.codec, length, name=block.name, checked=checked)
                except BadBlock as error:
                    bad = block, error.reason
                    break
                arrays.append(array)
                if not checked:
                    self.memory.put(tokens, block, value)
        if bad is not None:
            self._drop(tokens.session, *bad)
        return KvPieces(tuple(arrays))

    def _drop(self, session: SessionKey, block: Block, reason: str) -> None:
        metrics.kv_dropped.labels(reason).inc()
        if reason not in self._logged:  # log once, since an attacker would plant thousands; the metric counts them
            self._logged.add(reason)
            log.warning("kv_block_dropped", reason=reason, shared=block.shared, action="the tokens are computed")
        try:
            self.store.drop(session, () if block.shared else (block.name,), (block.name,) if block.shared else ())
        except StoreUnavailable:
            return

    def _in_full_blocks(self, blocks: Sequence[Block]) -> int:
        """Return the number of tokens in full blocks. A tail's tokens are exported again with those that complete
        its block."""
        return sum(block.stop - block.start for block in blocks if block.stop - block.start == self.block_tokens)

    def _recompute_ms(self, start: int, stop: int) -> float:
        return self.costs.prefill_ms(stop - start, past=start) if stop > start else 0.0

    def _value_bytes(self, block: Block) -> int:
        return value_bytes(self.layout, self.codec, block.stop - block.start)
