"""Store a conversation's KV for its next turn: look it up before a prompt waits, save it after the sequence has ended.

    prompt → names → host memory, disk → ask Redis → is it worth loading? → load → check → the sequence's `prefix`
    the slot's KV, exported at the end → names → encode → host memory → ask Redis → write what is missing

Two threads, one for each direction, call Redis, encode and decode, so that a prompt waits for no write. The engine's
thread only copies. A failure here costs time and never an answer: a block that does not match its name is dropped and
counted, and its tokens are computed.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Any, Final, TypeVar

from numpy.typing import NDArray

from shared.errors import SettingsError, StoreUnavailable
from shared.process.threads import make_queue, make_thread
from shared.settings import PREFIX, Settings
from shared.settings.worker import KvSettings
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey
from workers.engine import EngineInfo
from workers.kv.blocks import BLOCK_TOKENS, BlockNamer
from workers.kv.disk import DiskTier
from workers.kv.gate import LoadGate
from workers.kv.loader import KvLoader
from workers.kv.memory import ConversationTokens, KvMemory
from workers.kv.store import KvStore
from workers.kv.values import Codec, encode, value_bytes
from workers.schedule.policy import Costs
from workers.schedule.sequence import Prefix, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSaver:
    """Saves KV. `store` belongs to this thread."""

    codec: Codec
    namer: BlockNamer
    memory: KvMemory
    store: KvStore

    def save(self, tokens: ConversationTokens, start: int, values: NDArray[Any], in_memory: Callable[[], None]) -> None:
        """Save the KV of the tokens from `start`.

        Args:
            tokens: the conversation's tokens.
            start: the first token of `values`.
            values: the exported KV.
            in_memory: called when the host memory has it, before Redis is asked.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
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
        if saved is None:  # erased before this process has received the erasure
            self.memory.drop(session)


T = TypeVar("T")

log = get_logger()


class Lane:
    """A thread that runs one call after another.

    It is a daemon, so that a hanging system call does not delay the process's end.

    Args:
        name: the thread's name.
        idle: called after a time without work.
        idle_due_s: returns that time; None for never.
    """

    def __init__(self, name: str, *, idle: Callable[[], object], idle_due_s: Callable[[], float | None]) -> None:
        self._idle = idle
        self._idle_due_s = idle_due_s
        self._queue = make_queue()
        self._thread = make_thread(self._run, name)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Submit a call from any thread. The future may be cancelled until the call starts."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - raised where the future is awaited
                future.set_exception(error)

        self._queue.put(run)
        return future

    def close(self, timeout_s: float) -> None:
        """Run the submitted calls, then end the thread; wait at most `timeout_s`."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            try:
                run: Callable[[], None] | None = self._queue.get(timeout=self._idle_due_s())
            except Empty:
                self._look_after()
                continue
            if run is None:
                return
            run()
            del run  # drop the reference to the call's result

    def _look_after(self) -> None:
        try:
            self._idle()
        except Exception:  # an internal fault must not end the thread, which other calls need
            log.exception("kv_idle_failed")


_ALL: Final = sys.maxsize
_WORTH_MS: Final = 1.0  # duration of a lookup without a load
_MOST_UNSAVED_BYTES: Final = 256 << 20
_WAIT_S: Final = 0.25
_CLOSE_S: Final = 5.0


class KvCache:
    """The cache of one model's KV. Call `start` before its first use.

    KV that the engine would compute in less than a millisecond is neither looked up nor stored.
    """

    def __init__(self, *, memory: KvMemory, loader: KvLoader, saver: KvSaver, costs: Costs) -> None:
        self._memory = memory
        self._loader = loader
        self._saver = saver
        self._costs = costs
        self._lock = threading.Lock()  # around what is being saved
        self._unsaved_bytes = 0
        self._coming: dict[SessionKey, Future[None]] = {}
        self._fetches = _lane("kv-load", loader.store)
        self._saves = _lane("kv-save", saver.store)

    def start(self) -> None:
        self._fetches.start()
        self._saves.start()

    async def find(self, sequence: Sequence, *, first: bool, standing: int = 0) -> Prefix:
        """Return the stored KV of a prompt, without its last token, before the prompt waits for a slot.

        Nothing is fetched while as much KV waits for a slot as the host memory may hold.

        Args:
            sequence: the sequence with the prompt.
            first: the conversation has no earlier turn, so only blocks shared by the tenant's conversations can be
                stored.
            standing: number of first tokens whose KV is in a slot; no more tokens' KV is fetched than beyond these.
        """
        if self._costs.prefill_ms(len(sequence.prompt_ids)) <= _WORTH_MS:
            return Prefix(kept=_ALL)
        prompt = ConversationTokens(
            session=sequence.session,
            ids=sequence.prompt_ids,
            shared=sequence.shared_tokens,
            generation=sequence.generation,
        )
        try:
            await self._last_turn_is_here(prompt.session)
            find = partial(self._loader.find, prompt, first=first, standing=standing)
            return await asyncio.wrap_future(self._fetches.submit(find))
        except Exception as error:  # noqa: BLE001 - counted and logged; the tokens are computed
            caught("kv", error, request_id=sequence.request_id)
            metrics.kv_dropped.labels("internal").inc()
            return Prefix()

    def keep(self, sequence: Sequence, start: int, values: NDArray[Any]) -> None:
        """Save the KV of an ended sequence from token `start`, which begins a block.

        May be called on any thread and does not wait. Without room for it until it is written, it is not saved.
        """
        ids = [*sequence.prompt_ids, *sequence.output_ids][: start + values.shape[3]]
        tokens = ConversationTokens(
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
        self._saves.submit(lambda: self._save(tokens, start, values, coming))

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget a conversation's earlier generations in this process; `History.delete` erases them in Redis."""
        self._memory.erase(session, generation)

    def close(self) -> None:
        """Write the KV that should be saved, within a limit."""
        self._fetches.close(_CLOSE_S)
        self._saves.close(_CLOSE_S)
        self._memory.close()
        self._loader.store.close()
        self._saver.store.close()

    async def _last_turn_is_here(self, session: SessionKey) -> None:
        """Wait until the last turn's KV is in memory, since the next question may come before it is encoded."""
        if (coming := self._coming.get(session)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await asyncio.shield(asyncio.wrap_future(coming))

    # --- called on the saving thread

    def _save(self, tokens: ConversationTokens, start: int, values: NDArray[Any], coming: "Future[None]") -> None:
        try:
            with metrics.kv_time.labels("save").time():
                self._saver.save(tokens, start, values, in_memory=lambda: self._come(tokens.session, coming))
        except StoreUnavailable:
            metrics.kv_dropped.labels("unavailable").inc()
        except Exception as error:  # noqa: BLE001 - counted and logged; the turn's KV is not saved
            caught("kv", error)
            metrics.kv_dropped.labels("internal").inc()
        finally:
            self._come(tokens.session, coming)
            with self._lock:
                self._unsaved_bytes -= values.nbytes

    def _come(self, session: SessionKey, coming: "Future[None]") -> None:
        """Mark the conversation's KV as being in host memory, or as not going to be."""
        with self._lock:
            if self._coming.get(session) is coming:
                del self._coming[session]
        if not coming.done():
            coming.set_result(None)


def _lane(name: str, store: KvStore) -> Lane:
    def due_s() -> float | None:
        due_ms = store.probe_due_in_ms()
        return None if due_ms is None else max(due_ms / 1_000, 0.001)

    return Lane(name, idle=store.probe, idle_due_s=due_s)


_PROBE_INTERVAL_MS: Final = 1_000.0


def open_cache(settings: Settings, info: EngineInfo, costs: Costs) -> KvCache:
    """Return the cache; it connects when it is started.

    Raises:
        SettingsError: the Redis URL is invalid, or the disk tier's folder cannot be created.
    """
    kv, layout = settings.kv, info.kv_layout
    longest = value_bytes(layout, kv.precision, BLOCK_TOKENS)
    # everything besides its tokens that a value depends on
    layout_id = f"{info.model}/{info.revision}/{info.precision}/{layout.describe()}/{kv.precision}"

    def store(*, logs_outages: bool) -> KvStore:
        return KvStore(
            settings.redis_of_kv,
            kv,
            marks=settings.redis,
            max_value_bytes=longest,
            count_dropped=lambda reason: metrics.kv_dropped.labels(reason).inc(),
            logs_outages=logs_outages,
        )

    memory = KvMemory(max_bytes=kv.host_mib << 20, ttl_s=kv.ttl_s, disk=_open_disk(kv))
    namer = BlockNamer(salt=b"", layout_id=layout_id, block_tokens=BLOCK_TOKENS)
    loader = KvLoader(
        layout=layout,
        codec=kv.precision,
        block_tokens=BLOCK_TOKENS,
        namer=namer,
        memory=memory,
        gate=LoadGate(probe_interval_ms=_PROBE_INTERVAL_MS),
        store=store(logs_outages=True),
        costs=costs,
    )
    saver = KvSaver(codec=kv.precision, namer=namer, memory=memory, store=store(logs_outages=False))
    return KvCache(memory=memory, loader=loader, saver=saver, costs=costs)


def _open_disk(kv: KvSettings) -> DiskTier | None:
    """Return the disk tier; None if it is disabled.

    Raises:
        SettingsError: its folder cannot be created.
    """
    if not kv.disk_mib:
        return None
    try:
        return DiskTier(kv.disk_dir, max_bytes=kv.disk_mib << 20, ttl_s=kv.ttl_s)
    except OSError as error:
        raise SettingsError(
            f"{PREFIX}KV__DISK_DIR={kv.disk_dir}: {error.strerror}; name a folder to write to"
        ) from None
