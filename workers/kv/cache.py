"""Keep what was computed of a conversation for its next turn: found before it waits, kept after it has ended.

    prompt → names → host memory → ask Redis → is it worth loading? → load → check → the sequence's `prefix`
    the slot's KV, exported at the end → names → encode → host memory → ask Redis → write what is not there

Redis, encoding and decoding are two threads' work, one a direction: a prompt waits for no write. The engine's thread
only copies. Whatever goes wrong here costs time and never an answer: a block that is not what its name says is dropped
and counted, and the tokens are computed.
"""

import asyncio
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from shared.conversation.erasures import Erasures
from shared.errors import StoreUnavailable
from shared.process.clock import monotonic_s, now_unix_ms
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey
from workers.engine.kv_layout import KvLayout
from workers.engine.kv_pieces import KvPieces
from workers.kv.blocks import Block, BlockChain, BlockNamer, unbroken
from workers.kv.gate import LoadGate
from workers.kv.handed_out import HandedOut
from workers.kv.host import HostCache
from workers.kv.lane import Lane
from workers.kv.store import KvStore
from workers.kv.values import BadBlock, Codec, decode, encode, value_bytes
from workers.schedule.policy import Costs
from workers.schedule.sequence import Prefix
from workers.schedule.sequence import Sequence as TokenSequence

_ALL: Final = sys.maxsize
_WORTH_MS: Final = 1.0  # what a fetch itself takes, without a load
_MOST_UNSAVED_BYTES: Final = 256 << 20
_LEAST_WAITING_BYTES: Final = 1 << 30  # as much may wait for slots however little the host memory may hold
_WAIT_S: Final = 0.25
_CLOSE_S: Final = 5.0

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokens:
    """Tokens of a conversation; the first `shared` hold no customer's words. `first`: nothing was said in it before, so
    only what a tenant's conversations share can have been kept."""

    session: SessionKey
    ids: Sequence[int]
    shared: int
    generation: int
    first: bool = False
    standing: int = 0


class KvCache:
    """`loading` and `saving` are two stores on the same Redis: each is its thread's own. `start` before the first use.

    `costs` are the engine's; what would take it less than a millisecond is neither fetched nor kept.
    """

    def __init__(
        self,
        *,
        layout: KvLayout,
        codec: Codec,
        namer: BlockNamer,
        block_tokens: int,
        host: HostCache,
        gate: LoadGate,
        loading: KvStore,
        saving: KvStore,
        costs: Costs,
    ) -> None:
        self._layout = layout
        self._codec: Codec = codec
        self._namer = namer
        self._block_tokens = block_tokens
        self._host = host
        self._gate = gate
        self._loading = loading
        self._saving = saving
        self._costs = costs
        self._lock = threading.Lock()  # around the host memory
        self._erasures = Erasures()
        self._unsaved_bytes = 0
        self._handed_out = HandedOut()  # the fetching thread's
        self._told: set[str] = set()
        self._coming: dict[SessionKey, Future[None]] = {}
        self._fetches = _lane("kv-load", loading)
        self._saves = _lane("kv-save", saving)

    def start(self) -> None:
        self._fetches.start()
        self._saves.start()

    async def find(self, sequence: TokenSequence, *, first: bool, standing: int = 0) -> Prefix:
        """Return what there is of a prompt's KV, before it waits: all tokens but the last at most.

        `first`: nothing was said in the conversation before. `standing`: so many of the first tokens stand in a slot;
        what is no more than that is not fetched; nor is anything while as much waits as the host memory may hold.
        """
        if not self._worthwhile(sequence):
            return Prefix(kept=_ALL)
        prompt = _Tokens(
            session=sequence.session,
            ids=sequence.prompt_ids,
            shared=sequence.shared_tokens,
            generation=sequence.generation,
            first=first,
            standing=standing,
        )
        try:
            await self._last_turn_is_here(prompt.session)
            return await asyncio.wrap_future(self._fetches.submit(lambda: self._fetch(prompt)))
        except Exception as error:  # noqa: BLE001 - counted and logged; the tokens are computed
            caught("kv", error, request_id=sequence.request_id)
            metrics.kv_dropped.labels("internal").inc()
            return Prefix()

    def keep(self, sequence: TokenSequence, start: int, values: NDArray[Any]) -> None:
        """Keep the KV of a sequence that has ended, from token `start`, a block's first. From any thread, without
        waiting; what there is no room for until it is written is not kept."""
        ids = [*sequence.prompt_ids, *sequence.output_ids][: start + values.shape[3]]
        tokens = _Tokens(
            session=sequence.session,
            ids=ids,
            shared=min(sequence.shared_tokens, len(ids)),
            generation=sequence.generation,
        )
        with self._lock:
            if self._unsaved_bytes + values.nbytes > _MOST_UNSAVED_BYTES:
                metrics.kv_dropped.labels("backlog").inc()
                return
            self._unsaved_bytes += values.nbytes
            coming = self._coming[tokens.session] = Future()
        self._saves.submit(lambda: self._keep(tokens, start, values, coming))

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget a conversation's earlier generations here; in Redis whoever is asked to erases them
        (`History.delete`)."""
        with self._lock:
            self._erasures.add(session, generation, now_unix_ms())
            self._host.erase(_owner(session))
            metrics.kv_host_bytes.set(self._host.num_bytes)

    def close(self) -> None:
        """Write what is to be kept, within a limit."""
        self._fetches.close(_CLOSE_S)
        self._saves.close(_CLOSE_S)
        self._loading.close()
        self._saving.close()

    async def _last_turn_is_here(self, session: SessionKey) -> None:
        """Wait until the last turn is here: a question that follows at once is sooner here than the last answer's KV is
        encoded."""
        if (coming := self._coming.get(session)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await asyncio.shield(asyncio.wrap_future(coming))

    def _worthwhile(self, sequence: TokenSequence) -> bool:
        """Return whether computing the prompt takes longer than looking for it."""
        return self._costs.prefill_ms(len(sequence.prompt_ids)) > _WORTH_MS

    # --- on the fetching thread

    def _fetch(self, tokens: _Tokens) -> Prefix:
        ids = tokens.ids
        chain = self._namer.chain(tokens.session, ids, tokens.shared)
        with self._lock:
            now = now_unix_ms()
            run = chain.longest_run(self._host).blocks
            kept = {block.name: self._host.get(block.name, now) for block in run}
        values = {name: value for name, value in kept.items() if value is not None}  # none has expired
        blocks = unbroken(block for block in run if block.name in values)
        here = frozenset(values)
        if tokens.standing and tokens.standing >= (blocks[-1].stop if blocks else 0):
            return Prefix(num_tokens=min(tokens.standing, len(ids) - 1), kept=self._in_full_blocks(blocks))
        if self._handed_out.num_bytes() >= max(self._host.max_bytes, _LEAST_WAITING_BYTES):
            metrics.kv_dropped.labels("waiting").inc()
            return Prefix(kept=self._in_full_blocks(blocks))
        blocks, loaded = self._load(tokens, chain, blocks, values)
        pieces = self._decoded(tokens, blocks, values, here)
        blocks = blocks[: len(pieces.arrays)]
        num_tokens = min(pieces.num_tokens, len(ids) - 1)
        if num_tokens <= 0:
            return Prefix()
        self._handed_out.add(pieces)
        first_loaded = next((block.start for block in blocks if block.name in loaded), num_tokens)
        return Prefix(
            num_tokens=num_tokens,
            loaded=max(num_tokens - first_loaded, 0),
            kept=self._in_full_blocks(blocks),
            values=pieces,
        )

    def _load(
        self, tokens: _Tokens, chain: BlockChain, blocks: tuple[Block, ...], values: dict[bytes, bytes]
    ) -> tuple[tuple[Block, ...], frozenset[bytes]]:
        """More of the chain, from Redis, where that is sooner than computing it; and the names of what was loaded."""
        have, num_tokens = blocks[-1].stop if blocks else 0, len(tokens.ids)
        shared = [block.name for block in chain.blocks if block.shared and block.name not in values]
        nothing = frozenset[bytes]()
        if not self._loading.available or (tokens.first and not shared):
            return blocks, nothing
        if not self._gate.worth_asking(self._recompute_ms(have, num_tokens), now_unix_ms()):
            return blocks, nothing
        begun = monotonic_s()
        num_bytes = 0
        try:
            held = self._loading.ask(tokens.session, shared)
            found = chain.longest_run(values.keys() | held.session_names | held.shared_names).blocks
            wanted = [block for block in found if block.name not in values]
            sizes = [self._value_bytes(block) for block in wanted]
            gain_ms = self._recompute_ms(wanted[0].start, wanted[-1].stop) if wanted else 0.0
            decision = self._gate.decide(sizes, gain_ms, now_unix_ms())
            if wanted:
                metrics.kv_time.labels("recompute").observe(decision.recompute_ms / 1_000)
            wanted = wanted[: decision.num_blocks]
            num_bytes = sum(sizes[: decision.num_blocks])
            loaded = self._loading.load(
                tokens.session,
                [block.name for block in wanted if not block.shared],
                [block.name for block in wanted if block.shared],
            )
        except StoreUnavailable:
            self._gate.observe(max(num_bytes, 1), (monotonic_s() - begun) * 1_000, now_unix_ms())
            return blocks, nothing
        seconds = monotonic_s() - begun
        if loaded:
            num_bytes = sum(map(len, loaded.values()))
            self._gate.observe(num_bytes, seconds * 1_000, now_unix_ms())
            metrics.kv_time.labels("load").observe(seconds)
        values |= loaded
        return unbroken(block for block in found if block.name in values), frozenset(loaded)

    def _decoded(
        self,
        tokens: _Tokens,
        blocks: tuple[Block, ...],
        values: dict[bytes, bytes],
        here: frozenset[bytes],
    ) -> KvPieces:
        """Return the blocks' tensors, up to the first that is not what its name says."""
        arrays: list[NDArray[Any]] = []
        for block in blocks:
            value = values[block.name]
            try:
                array = decode(
                    value,
                    self._layout,
                    self._codec,
                    block.stop - block.start,
                    name=block.name,
                    checked=block.name in here,
                )
            except BadBlock as error:
                self._drop(tokens.session, block, error.reason)
                break
            arrays.append(array)
            if block.name not in here:
                self._put(tokens, block, value)
        return KvPieces(tuple(arrays))

    def _drop(self, session: SessionKey, block: Block, reason: str) -> None:
        metrics.kv_dropped.labels(reason).inc()
        if reason not in self._told:  # once: whoever plants one plants thousands; the metric counts them
            self._told.add(reason)
            log.warning("kv_block_dropped", reason=reason, shared=block.shared, action="the tokens are computed")
        try:
            self._loading.drop(session, () if block.shared else (block.name,), (block.name,) if block.shared else ())
        except StoreUnavailable:
            return

    def _in_full_blocks(self, blocks: Sequence[Block]) -> int:
        """Return how many tokens; a tail's are exported again, with those that fill its block."""
        return sum(block.stop - block.start for block in blocks if block.stop - block.start == self._block_tokens)

    def _recompute_ms(self, start: int, stop: int) -> float:
        return self._costs.prefill_ms(stop - start, past=start) if stop > start else 0.0

    def _value_bytes(self, block: Block) -> int:
        return value_bytes(self._layout, self._codec, block.stop - block.start)

    # --- on the saving thread

    def _keep(self, tokens: _Tokens, start: int, values: NDArray[Any], coming: "Future[None]") -> None:
        try:
            with metrics.kv_time.labels("save").time():
                self._save(tokens, start, values, coming)
        except StoreUnavailable:
            metrics.kv_dropped.labels("unavailable").inc()
        except Exception as error:  # noqa: BLE001 - counted and logged; the turn's KV is not kept
            caught("kv", error)
            metrics.kv_dropped.labels("internal").inc()
        finally:
            self._come(tokens.session, coming)
            with self._lock:
                self._unsaved_bytes -= values.nbytes

    def _save(self, tokens: _Tokens, start: int, values: NDArray[Any], coming: "Future[None]") -> None:
        session, ids = tokens.session, tokens.ids
        chain = self._namer.chain(session, ids, tokens.shared)
        encoded: dict[bytes, bytes] = {}
        for block in chain.blocks:
            if block.start >= start and not self._have(block.name):
                part = values[:, :, :, block.start - start : block.stop - start]
                try:
                    encoded[block.name] = encode(part, self._codec, name=block.name)
                except ValueError:
                    metrics.kv_dropped.labels("not_finite").inc()
                    break
                self._put(tokens, block, encoded[block.name])
        self._come(tokens.session, coming)
        if not self._saving.available or self._is_erased(tokens):
            return
        held = self._saving.ask(session, [block.name for block in chain.blocks if block.shared])
        missing = chain.missing(held.session_names | held.shared_names)
        with self._lock:
            now = now_unix_ms()
            kept = {block: encoded.get(block.name) or self._host.get(block.name, now) for block in missing}
        saved = self._saving.save(
            session,
            {block.name: value for block, value in kept.items() if value is not None and not block.shared},
            drop=chain.stale(held.session_names),
            shared={block.name: value for block, value in kept.items() if value is not None and block.shared},
            generation=tokens.generation,
        )
        if saved is None:  # erased before this process could hear of it
            with self._lock:
                self._host.erase(_owner(session))

    def _come(self, session: SessionKey, coming: "Future[None]") -> None:
        """Note that what was to be kept is in host memory, or will not be."""
        with self._lock:
            if self._coming.get(session) is coming:
                del self._coming[session]
        if not coming.done():
            coming.set_result(None)

    # --- the host memory

    def _is_erased(self, tokens: _Tokens) -> bool:
        """Return whether their generation of the conversation was erased."""
        return self._erasures.erased(tokens.session, tokens.generation, now_unix_ms())

    def _have(self, name: bytes) -> bool:
        with self._lock:
            return name in self._host

    def _put(self, tokens: _Tokens, block: Block, value: bytes) -> None:
        session = tokens.session
        with self._lock:
            if block.shared or not self._is_erased(tokens):
                owner = session.tenant if block.shared else _owner(session)
                self._host.put(block.name, value, owner, now_unix_ms())
                metrics.kv_host_bytes.set(self._host.num_bytes)


def _owner(session: SessionKey) -> str:
    return f"{session.tenant}/{session.session_id}"


def _lane(name: str, store: KvStore) -> Lane:
    def due_s() -> float | None:
        due_ms = store.probe_due_in_ms()
        return None if due_ms is None else max(due_ms / 1_000, 0.001)

    return Lane(name, idle=store.probe, idle_due_s=due_s)
