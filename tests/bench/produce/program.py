"""`replyline bench produce`: request records straight to Kafka, as many as the broker takes.

To topics of its own unless told otherwise, which it makes and removes: nobody's workers drown in them.
"""

import asyncio
import importlib.util
import math
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from rich.console import Console

from ops.measure.environment import environment
from ops.measure.runner import check_writable, markdown, show, verdict, write_json
from ops.measure.usage import busy_s, cores, cpu_s
from ops.stack.embedded import INSTALL_COMMAND
from ops.stack.processes import Child, ServiceError
from ops.texts.prompts import parse_mix
from shared.errors import SettingsError
from shared.records.requests import Defaults
from shared.settings import Settings
from shared.wire.topics import BUCKETS, BucketEdges
from tests.bench.produce.kafka import broker_of, client_config, topics_of
from tests.bench.produce.order import Order, Produced
from tests.bench.produce.records import Stock

TARGET_PER_S: Final = 100_000
_MOST_RATE: Final = 10_000_000.0
_MOST_SECONDS: Final = 600.0
_MOST_PROCESSES: Final = 64
_MOST_REQUESTS: Final = 1_000_000_000
_START_S: Final = 1.5
_END_S: Final = 120.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """`rate` of all processes together; None is as fast as can be. `broker` "kafka" is an Apache Kafka of its own."""

    rate: float | None
    seconds: float
    processes: int
    requests: int
    sessions: int
    prefix: str
    mix: str
    broker: Literal["configured", "kafka"]
    keep: bool
    json_path: Path | None

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        ranges: dict[str, tuple[float, float, float]] = {
            "--seconds": (self.seconds, 0.1, _MOST_SECONDS),
            "--processes": (self.processes, 1, _MOST_PROCESSES),
            "--requests": (self.requests, 1, _MOST_REQUESTS),
            "--sessions": (self.sessions, 1, _MOST_REQUESTS),
        }
        faults = [
            f"{name} {value:g}: must be {least:g} to {most:g}"
            for name, (value, least, most) in ranges.items()
            if not least <= value <= most
        ]
        if faults:
            raise SettingsError("\n".join(faults))
        parse_mix(self.mix)
        check_writable(self.json_path)


def parse_rate(text: str) -> float | None:
    """`max`, or requests a second. Raises `SettingsError`."""
    if text == "max":
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= _MOST_RATE:
        raise SettingsError(f"--rate {text}: write max, or requests a second above 0, {_MOST_RATE:,.0f} at most")
    return rate


class ProduceResult(Struct, frozen=True, kw_only=True):
    """`records_per_s` counts what was acknowledged, from the first record's start to the last acknowledgement.

    Cores are those in use on the mean; the broker's are unknown where it is not this machine's, `others` are all
    processes of the machine but these."""

    records_per_s: float
    acknowledged: int
    failed: int
    unacknowledged: int
    seconds: float
    mb_per_s: float
    cpu_s_per_100k: float
    tool_cores: float
    broker_cores: float | None
    others_cores: float
    by_bucket: dict[str, int]
    error: str = ""

    @property
    def all_acknowledged(self) -> bool:
        return not self.failed and not self.unacknowledged


async def bench_produce(settings: Settings, options: ProduceOptions, console: Console) -> None:
    """Raises `SettingsError`, `BrokerUnavailable`, `ServiceError`."""
    options.check()
    if importlib.util.find_spec("confluent_kafka") is None:
        raise SettingsError(f"bench produce needs confluent-kafka. Type: {INSTALL_COMMAND}")
    facts = environment(engine="none", broker="kafka" if options.broker == "kafka" else "unknown")
    async with (
        broker_of(settings.kafka, console, own=options.broker == "kafka") as (kafka, broker_pid),
        topics_of(kafka, console, prefix=options.prefix, keep=options.keep) as there,
    ):
        result = await measure(settings.model_copy(update={"kafka": there}), options, broker_pid)
        _print(result, options)
        write_json(options.json_path, {"result": result, "rate": options.rate or "max", "environment": facts})


async def measure(settings: Settings, options: ProduceOptions, broker_pid: int | None) -> ProduceResult:
    """Write to topics that are there. Raises `ServiceError` where a process ends without a result."""
    orders = _orders(settings, options)
    watched = () if broker_pid is None else (broker_pid,)
    with tempfile.TemporaryDirectory(prefix="replyline-produce-") as folder:
        logs = [Path(folder, f"{number}.json") for number in range(len(orders))]
        children = [
            Child.start(
                [sys.executable, "-m", "tests.bench.produce.process"], stdin=msgspec.json.encode(order), log=log
            )
            for order, log in zip(orders, logs, strict=True)
        ]
        try:
            await asyncio.sleep(max(0.0, orders[0].start_s - time.monotonic()))
            before = _used_s(watched)
            await _ended(children, options.seconds + _END_S)
            after = _used_s(watched)
        finally:
            for child in children:
                child.stop()
        produced = [_result_of(log) for log in logs]
    return _summed(produced, before, after, has_broker=broker_pid is not None)


def _orders(settings: Settings, options: ProduceOptions) -> list[Order]:
    """Each process has its part of the rate and of the requests."""
    stock = Stock(
        topics=settings.kafka.topics,
        defaults=Defaults.of(settings),
        edges=BucketEdges(settings.limits.short_max_tokens, settings.limits.medium_max_tokens),
        mix=parse_mix(options.mix),
        max_output_tokens=settings.limits.default_output_tokens,
    )
    start_s = time.monotonic() + _START_S
    each, more = divmod(options.requests, options.processes)
    parts = [each + (number < more) for number in range(options.processes)]
    return [
        Order(
            config=client_config(settings.kafka),
            stock=stock,
            run=secrets.randbits(32),
            start_s=start_s,
            seconds=options.seconds,
            rate=None if options.rate is None else options.rate / options.processes,
            requests=part,
            sessions=options.sessions,
        )
        for part in parts
        if part
    ]


async def _ended(children: Sequence[Child], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while any(child.running for child in children) and time.monotonic() < until:  # noqa: ASYNC110 - processes
        await asyncio.sleep(_POLL_S)


def _used_s(pids: Sequence[int]) -> tuple[float, float]:
    """(of these processes, of the whole machine), CPU seconds so far."""
    return sum(cpu_s(pid) for pid in pids), busy_s(cores())


def _result_of(log: Path) -> Produced:
    """Raises `ServiceError`."""
    text = log.read_bytes()
    last = text.splitlines()[-1] if text.strip() else b"it said nothing"
    try:
        return msgspec.json.decode(last, type=Produced)
    except msgspec.DecodeError:
        raise ServiceError(f"a producing process ended without a result: {last.decode(errors='replace')}") from None


def _summed(
    produced: Sequence[Produced],
    before: tuple[float, float],
    after: tuple[float, float],
    *,
    has_broker: bool,
) -> ProduceResult:
    took_s = max(one.end_s for one in produced) - min(one.start_s for one in produced)
    sent, failed = sum(one.sent for one in produced), sum(one.failed for one in produced)
    unacknowledged, used_s = sum(one.unacknowledged for one in produced), sum(one.cpu_s for one in produced)
    acknowledged = sent - failed - unacknowledged
    broker_s, machine_s = after[0] - before[0], after[1] - before[1]
    by_bucket: Counter[str] = Counter()
    for one in produced:
        by_bucket.update(one.by_bucket)
    return ProduceResult(
        records_per_s=round(acknowledged / took_s),
        acknowledged=acknowledged,
        failed=failed,
        unacknowledged=unacknowledged,
        seconds=round(took_s, 3),
        mb_per_s=round(sum(one.value_bytes for one in produced) / took_s / 1e6, 1),
        cpu_s_per_100k=round(used_s / max(1, sent) * 100_000, 3),
        tool_cores=round(used_s / took_s, 2),
        broker_cores=round(broker_s / took_s, 2) if has_broker else None,
        others_cores=round(max(0.0, machine_s - broker_s - used_s) / took_s, 2),
        by_bucket=dict(by_bucket),
        error=next((one.error for one in produced if one.error), ""),
    )


def _print(result: ProduceResult, options: ProduceOptions) -> None:
    header = (
        "records/s", "MB/s of values", "CPU s per 100k", "tool's cores", "broker's cores", "others'", "acknowledged"
    )  # fmt: skip
    row = (
        result.records_per_s, result.mb_per_s, result.cpu_s_per_100k, result.tool_cores, result.broker_cores,
        result.others_cores, "all" if result.all_acknowledged else f"{result.acknowledged:,}",
    )  # fmt: skip
    print(markdown(header, [row]))
    buckets = ", ".join(f"{bucket} {result.by_bucket.get(bucket, 0):,}" for bucket in BUCKETS)
    where = options.prefix or "the live topics"
    print(f"{result.acknowledged:,} records in {show(result.seconds)} s to {where}: {buckets}")
    if not result.all_acknowledged:
        why = f": {result.error}" if result.error else ""
        print(f"not acknowledged: {result.failed + result.unacknowledged:,}{why}")
    if options.rate is None:
        print(f"records/s: {verdict(result.records_per_s, TARGET_PER_S, at_least=True)}")
