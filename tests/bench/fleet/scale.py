"""`replyline bench scale`: what decides, with 100 workers, 5,000 tenants and 1,000 partitions.

The pure modules that serve, on one core, CPU time: admission, the cancels that a worker remembers, how a group shares
out its partitions. Then, in virtual time, a gateway with 10,000 streams that dies.
"""

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from msgspec import Struct
from structlog.testing import capture_logs

from gateway.admission.control import Admission, AdmissionPolicy
from ops.measure.environment import environment
from ops.measure.runner import check_writable, markdown, verdict, write_json
from shared.process.lifetime import settle_heap
from shared.settings import Settings
from shared.wire.assignment import Member, assign
from shared.wire.deadline import Deadline
from shared.wire.messages import Cancel, WorkerReport
from shared.wire.partitioner import partition_of
from shared.wire.topic_layout import cancel_partitions
from shared.wire.topics import BUCKETS, TopicNames, session_key
from tests.bench.fleet.failover import Costs, GoneOn, Streams, go_on
from tests.bench.fleet.replay_rate import pass_us
from workers.request.recent_cancels import REMEMBERED_MS, RecentCancels

TARGET_US: Final = 20.0
_NOW: Final = 1e12
_SLOTS: Final = 64
_SIZES: Final = ((10, 100, 100), (100, 5_000, 1_000), (1_000, 50_000, 1_000))
_SURVIVORS: Final = (1, 4, 20)
_CANCELS_PER_S: Final = 1_000


class AdmissionCost(Struct, frozen=True, kw_only=True):
    """`admit_us` with finding the key's partition, a worker found by it or, where none names it, the soonest of all."""

    workers: int
    tenants: int
    partitions: int
    admit_us: float
    admit_unknown_us: float
    report_us: float


class CancelCost(Struct, frozen=True, kw_only=True):
    """Of `remembered` in the two minutes, at one worker; `readers` of one cancel of a fleet."""

    per_s: int
    remembered: int
    forgotten: int
    mib: float
    add_us: float
    readers: float


class JoinCost(Struct, frozen=True, kw_only=True):
    """The share of the sessions that keep their worker when one joins, and the time to share out."""

    workers: int
    partitions: int
    kept: float
    ms: float


class Gateways(Struct, frozen=True, kw_only=True):
    """`connects_per_s` and `tell_us` of a gateway on one core, `busy` with its own clients."""

    connects_per_s: float
    tell_us: float
    busy: float


async def bench_scale(*, requests: int, gateways: Gateways, json_path: Path | None) -> None:
    check_writable(json_path)
    settle_heap()
    admission = [_admission(*size, requests=requests) for size in _SIZES]
    cancels, join = _cancels(), _join()
    with capture_logs():
        replay_us = await pass_us()
    gone_on = _failover(gateways, replay_us)
    _show(admission, cancels, join, replay_us, gone_on)
    result = {"admission": admission, "cancels": cancels, "join": join, "pass_us": round(replay_us, 2)}
    result |= {"gateways": gateways, "failover": gone_on}
    write_json(json_path, {**result, "environment": environment(engine="none", broker="embedded")})


# --- admission


def _admission(workers: int, tenants: int, partitions: int, *, requests: int) -> AdmissionCost:
    """Every slot is taken and every tenant asks; a tenth of the workers cannot meet what is asked of them."""
    admission = Admission(AdmissionPolicy.of(Settings()))
    reports = [_report(number, workers, partitions) for number in range(workers)]
    for report in reports:
        admission.fleet.observe(report, _NOW)
    chance = Random(1)
    for number in range(_SLOTS * workers):
        _admit(admission, f"before{number}", f"t{number % tenants}", partition=chance.randrange(partitions))
    asked = [(f"r{number}", f"t{chance.randrange(tenants)}") for number in range(requests)]
    keys = [session_key(tenant, f"sess_{chance.getrandbits(128):032x}") for _, tenant in asked]
    admit_us = _each_us(
        requests, lambda at: _admit(admission, *asked[at], partition=partition_of(keys[at], partitions))
    )
    for name, _ in asked:
        admission.heard(name, _NOW)
        admission.ended(name)
    return AdmissionCost(
        workers=workers,
        tenants=tenants,
        partitions=partitions,
        admit_us=admit_us,
        admit_unknown_us=_each_us(requests, lambda at: _admit(admission, *asked[at], partition=None)),
        report_us=_each_us(requests, lambda at: admission.fleet.observe(reports[at % workers], _NOW)),
    )


def _admit(admission: Admission, name: str, tenant: str, *, partition: int | None) -> None:
    deadline = Deadline(first_token_unix_ms=int(_NOW) + 3_000, deadline_unix_ms=int(_NOW) + 15_000)
    admission.decide(name, tenant, "short", deadline, partition=partition, received_unix_ms=_NOW, now_unix_ms=_NOW)


def _report(number: int, workers: int, partitions: int) -> WorkerReport:
    return WorkerReport(
        worker_id=f"w{number}",
        unix_ms=int(_NOW),
        buckets=BUCKETS,
        slots=_SLOTS,
        running=_SLOTS,
        backlog_ms=200.0,
        first_token_ms=dict.fromkeys(BUCKETS, 60_000.0 if number % 10 == 0 else 250.0 + number / workers),
        service_ms=dict.fromkeys(BUCKETS, 0.5),
        partitions=dict.fromkeys(BUCKETS, tuple(range(number, partitions, workers))),
    )


def _each_us(times: int, work: Callable[[int], object]) -> float:
    """CPU of one of so many."""
    start_s = time.process_time()
    for at in range(times):
        work(at)
    return round((time.process_time() - start_s) / times * 1e6, 1)


# --- cancels


def _cancels(workers: int = 100, partitions: int = 1_000) -> CancelCost:
    """All of a fleet's at one worker: the worst that can be."""
    number = round(_CANCELS_PER_S * REMEMBERED_MS / 1_000)
    told = [Cancel(request_id=f"resp_{at:024x}", reply_partition=3, created_unix_ms=at) for at in range(number)]
    cancelled, forgotten = RecentCancels(), 0
    tracemalloc.start()
    for at, cancel in enumerate(told):
        forgotten += cancelled.add(cancel, _NOW + at)
    mib = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    again = RecentCancels()
    held = assign(dict.fromkeys(BUCKETS, partitions), {f"w{at}": Member(frozenset(BUCKETS)) for at in range(workers)})
    reads = [cancel_partitions({n for ns in each.values() for n in ns}, partitions) for each in held.values()]
    return CancelCost(
        per_s=_CANCELS_PER_S,
        remembered=len(cancelled),
        forgotten=forgotten,
        mib=round(mib, 1),
        add_us=_each_us(number, lambda at: again.add(told[at], _NOW + at)),
        readers=sum(map(len, reads)) / partitions,
    )


# --- who comes and goes


def _join(workers: int = 100, partitions: int = 1_000) -> JoinCost:
    topics = [TopicNames().requests(bucket) for bucket in BUCKETS]
    members = {f"w{at:03}": Member(frozenset(topics)) for at in range(workers)}
    before = assign(dict.fromkeys(topics, partitions), members)
    known = {name: Member(frozenset(topics), held, 1) for name, held in before.items()}
    start_s = time.process_time()
    after = assign(dict.fromkeys(topics, partitions), {**known, "new": Member(frozenset(topics))})
    took_ms = (time.process_time() - start_s) * 1_000
    kept = sum(len(set(held[topics[0]]) & set(after[name][topics[0]])) for name, held in before.items())
    return JoinCost(workers=workers, partitions=partitions, kept=kept / partitions, ms=round(took_ms, 1))


def _failover(gateways: Gateways, replay_us: float) -> list[GoneOn]:
    costs = Costs(client_s=1 / gateways.connects_per_s, pass_s=replay_us * 1e-6, tell_s=gateways.tell_us * 1e-6)
    streams = Streams(replies_per_s=(1 - gateways.busy) / costs.tell_s)
    return [
        go_on(streams, costs, survivors=survivors, way=way, busy=gateways.busy)
        for survivors in _SURVIVORS
        for way in ("log", "worker")
    ]


# --- shown


def _show(
    admission: list[AdmissionCost], cancels: CancelCost, join: JoinCost, replay_us: float, gone_on: list[GoneOn]
) -> None:
    title = ("workers", "tenants", "partitions", "µs a request", "… worker not known", "µs a report")
    print(markdown(title, [tuple(getattr(row, name) for name in row.__struct_fields__) for row in admission]))
    for row in admission[:2]:
        print(f"a request at {row.workers} workers: {verdict(max(row.admit_us, row.admit_unknown_us), TARGET_US)}")
    print(
        f"\ncancels at {cancels.per_s} a second: read by {cancels.readers:g} worker; {cancels.remembered} remembered, "
        f"{cancels.forgotten} forgotten, {cancels.mib} MiB, {cancels.add_us} µs each"
    )
    print(f"a worker joins {join.workers}: {join.kept:.3f} of the sessions keep theirs; {join.ms} ms to share out")
    print(f"another gateway's replies: {replay_us:.1f} µs to pass over one\n")
    columns = ("survivors", "told by", "last client back s", "goes on p50 s", "p99 s", "all s", "by the FAQ instead")
    print(markdown(columns, [tuple(getattr(row, name) for name in row.__struct_fields__) for row in gone_on]))
