"""Have a lane's workers load a version, and move the lane to it once all of them have."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ops.lifecycle.versions import moves
from ops.lifecycle.versions.workers import SILENT_MS, LaneWorkers, lacking, lanes_of_a_rollout
from ops.lifecycle.versions.writer import MoveLost, RegistryWriter
from shared.errors import ReplylineError
from shared.kafka import PartitionReader
from shared.nouns import counted
from shared.process.clock import monotonic_s, now_unix_ms, wire_unix_ms
from shared.records.log_readers import apply_report
from shared.settings.kafka import KafkaSettings
from shared.versions.state import Move
from shared.wire.fields import Revision
from shared.wire.lanes import Lane
from shared.wire.reports import WorkerReport
from shared.wire.topics import BROADCAST_PARTITION

_LOOK_MS: Final = 100

Say = Callable[[str], None]


class NotLoaded(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "not_loaded"


async def load(writer: RegistryWriter, kafka: KafkaSettings, name: str, lane: Lane, wait_s: float, say: Say) -> int:
    """Have every live worker of a lane load a version; return how many did. If one refuses, or `wait_s` passes, no
    worker of the lane loads it any more.

    Raises:
        NotLoaded: a worker refused, or lacks the version after `wait_s`; the message names it
        ModelError: the version may have no traffic, or a move waits for its time
        MoveLost: another author moved the registry first
        BrokerUnavailable: Kafka cannot be reached
    """
    version = moves.allowed(writer.registry, name)
    state = moves.load(writer.registry, name, lane, wire_unix_ms())
    await writer.move(state, f"load {version.name}")
    try:
        return await _all_loaded(kafka, LaneWorkers(lane), version.id, state.epoch, wait_s, say)
    except (NotLoaded, asyncio.CancelledError):  # a Ctrl-C must not leave it loading
        await writer.log.catch_up()
        if writer.registry.epoch == state.epoch:
            await writer.move(moves.unload(writer.registry, lane, wire_unix_ms()), f"{version.name} was not loaded")
        raise


async def ready(
    writer: RegistryWriter, kafka: KafkaSettings, wanted: Mapping[Lane, Revision], wait_s: float, say: Say
) -> dict[Lane, LaneWorkers]:
    """Have the canary's workers load a version that they lack, and return the workers of a rollout's lanes. Raises
    `NotLoaded` unless each lane has live workers that all report the version wanted of it, and as `load` does."""
    lanes, version = await listen(kafka), wanted["canary"]
    canaries = lanes["canary"].loaded(version, now_unix_ms())
    if canaries and not all(canaries.values()):
        await load(writer, kafka, version, "canary", wait_s, say)
        lanes = await listen(kafka)
    if reasons := lacking(lanes, wanted, now_unix_ms()):
        raise NotLoaded(f"{'; '.join(reasons)}; nothing was started")
    return lanes


async def use(
    writer: RegistryWriter,
    kafka: KafkaSettings,
    name: str,
    lane: Lane,
    *,
    at_unix_ms: int,
    reason: str,
    wait_s: float,
    say: Say,
) -> Move:
    """Load a version, then move the lane to it, from a moment on; return the move. Raises as `load` does."""
    moves.use(writer.registry, name, lane, wire_unix_ms())  # what cannot be used is not loaded
    began_s = monotonic_s()
    workers = await load(writer, kafka, name, lane, wait_s, say)
    epoch = writer.registry.epoch
    await writer.log.catch_up()
    if writer.registry.epoch != epoch:
        raise MoveLost(writer.lost_to(epoch + 1))
    if not workers:
        say(f"no worker of lane {lane} lives: the first to start loads it")
    state = moves.use(writer.registry, name, lane, wire_unix_ms(), at_unix_ms)
    return await writer.move(state, reason, {"workers": workers, "load_s": round(monotonic_s() - began_s, 1)})


async def holders(kafka: KafkaSettings, lane: Lane, revision: Revision) -> Mapping[str, bool]:
    """Return the live workers of a lane, and whether each has a version loaded. Raises `BrokerUnavailable`."""
    return (await listen(kafka))[lane].loaded(revision, now_unix_ms())


async def listen(kafka: KafkaSettings) -> dict[Lane, LaneWorkers]:
    """Return the workers of a rollout's lanes, by what they report within three seconds. Raises
    `BrokerUnavailable`."""
    lanes = lanes_of_a_rollout()
    reader = _reader(kafka)
    await reader.start()
    until_s = monotonic_s() + SILENT_MS / 1_000
    try:
        while monotonic_s() < until_s:
            await _observe(reader, *lanes.values())
    finally:
        await reader.stop()
    return lanes


def _reader(kafka: KafkaSettings) -> PartitionReader:
    topic, partitions = kafka.topics.workers, (BROADCAST_PARTITION,)
    return PartitionReader(kafka, client_id="replyline-versions", topic=topic, partitions=partitions)


async def _observe(reader: PartitionReader, *lanes: LaneWorkers) -> None:
    def observe(worker_id: str, report: WorkerReport | None) -> None:
        for workers in lanes:
            workers.observe(worker_id, report, now_unix_ms())

    for record in await reader.read(timeout_ms=_LOOK_MS):
        apply_report(record, observe)


async def _all_loaded(
    kafka: KafkaSettings, workers: LaneWorkers, revision: Revision, epoch: int, wait_s: float, say: Say
) -> int:
    """Return how many workers have loaded it since the move of that epoch, once all that live have."""
    reader = _reader(kafka)
    await reader.start()
    began_s, shown = monotonic_s(), ""
    try:
        while True:
            await _observe(reader, workers)
            loaded, waited_s = workers.loaded(revision, now_unix_ms()), monotonic_s() - began_s
            of_all = counted(len(loaded), "worker")
            line = f"{sum(loaded.values())} of {of_all} of {workers.lane} loaded it"
            if loaded and line != shown:  # before the first reports no worker is known
                say(shown := line)
            if waited_s >= SILENT_MS / 1_000 and all(loaded.values()):
                return len(loaded)
            for worker, reason in workers.refusals(revision, epoch).items():
                raise NotLoaded(f"worker {worker} refuses version {revision}: {reason}; nothing was moved")
            if waited_s >= wait_s:
                raise NotLoaded(_missing(revision, loaded, wait_s))
    finally:
        await reader.stop()


def _missing(revision: Revision, loaded: Mapping[str, bool], wait_s: float) -> str:
    lacking = ", ".join(name for name, has in loaded.items() if not has) or "not known yet"
    return (
        f"version {revision} was not loaded within {wait_s:g} s (workers: {lacking}); nothing was moved; their "
        "logs say why; wait longer with --wait-s"
    )
