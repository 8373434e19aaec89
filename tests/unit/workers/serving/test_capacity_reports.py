"""A worker's reports: at intervals, and within 50 ms of a change. Time is the loop's own."""

import asyncio
import os
import re
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import msgpack

from shared.kafka import Outgoing
from shared.wire.fields import is_identifier
from shared.wire.lanes import Lane
from shared.wire.reports import WorkerReport
from shared.wire.topics import TopicNames
from tests.support.fakes.instant_loop import at_once
from workers.schedule.outlook import Outlook
from workers.serving.capacity import CapacityPublisher, worker_name

INTERVAL_S = 0.5
SOON_S = 0.05
PARTITIONS_SOON_S = 0.21


def outlook(first_token_ms: float) -> Outlook:
    expected = {"short": first_token_ms}
    return Outlook(
        running=1,
        waiting=0,
        free_slots=3,
        backlog_ms=0.0,
        first_token_ms=expected,  # type: ignore[arg-type]
        service_ms=expected,  # type: ignore[arg-type]
    )


@dataclass
class Reporter:
    """A worker that reports; `heard` are the times of its reports and the values they promise."""

    newest: Outlook | None = None
    heard: list[tuple[float, float]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    partitions: frozenset[tuple[str, int]] | None = frozenset()
    lane: Lane = "champion"
    newest_report: WorkerReport | None = None
    failures: int = 0

    def costs(self) -> None:
        self.failures, failed = self.failures - 1, self.failures > 0
        if failed:
            raise ZeroDivisionError

    async def publish(self, record: Outgoing) -> None:
        report = self.newest_report = msgpack.decode(record.value or b"", type=WorkerReport)
        self.heard.append((asyncio.get_running_loop().time(), report.first_token_ms["short"]))

    def look(self, first_token_ms: float) -> None:
        self.newest = outlook(first_token_ms)
        self.changed.set()

    def report(self) -> "asyncio.Task[None]":
        producer: Any = self
        publisher = CapacityPublisher(
            producer=producer,
            topics=TopicNames(),
            worker_id="w",
            buckets=("short",),
            lane=self.lane,
            interval_s=INTERVAL_S,
            outlook=lambda: self.newest,
            changed=self.changed,
            partitions=lambda: self.partitions,
            costs=self.costs,
        )
        return asyncio.create_task(publisher.run())


@at_once
async def test_a_change_is_told_within_50_ms_whenever_it_comes() -> None:
    reporter = Reporter()
    reporting = reporter.report()
    reporter.look(0.0)
    now, promises = asyncio.get_running_loop().time, [1_000.0 * (number % 2) + number for number in range(1, 40)]
    for number, promised_ms in enumerate(promises):
        await asyncio.sleep(0.013 * (1 + number % 7))
        reporter.look(promised_ms)
        came_s = now()
        await asyncio.sleep(SOON_S)
        assert [ms for at_s, ms in reporter.heard if came_s <= at_s <= came_s + SOON_S][-1:] == [promised_ms]
    reporting.cancel()


@at_once
async def test_partitions_that_come_or_go_are_told_before_the_interval_is_over() -> None:
    reporter = Reporter()
    reporting = reporter.report()
    reporter.look(0.0)
    await asyncio.sleep(0.01)
    before = len(reporter.heard)
    for partitions in (None, frozenset({("chat.requests.short", 3)})):
        reporter.partitions = partitions
        await asyncio.sleep(PARTITIONS_SOON_S)
    reporting.cancel()
    assert len(reporter.heard) == before + 2


@at_once
async def test_a_report_that_cannot_be_made_is_replaced_by_the_next_one() -> None:
    reporter = Reporter(failures=2)
    reporting = reporter.report()
    reporter.look(0.0)
    await asyncio.sleep(2.5 * INTERVAL_S)
    assert len(reporter.heard) == 1
    assert not reporting.done()
    reporting.cancel()


@at_once
async def test_however_much_changes_no_more_is_told_than_forty_times_a_second() -> None:
    reporter = Reporter()
    reporting = reporter.report()
    for number in range(1_000):
        reporter.look(1_000.0 * (number % 2))
        await asyncio.sleep(0.001)
    reporting.cancel()
    assert 15 <= len(reporter.heard) <= 41


@at_once
async def test_what_hardly_changes_is_told_at_intervals() -> None:
    reporter = Reporter()
    reporting = reporter.report()
    await asyncio.sleep(1.0)
    assert reporter.heard == [], "there is nothing to tell yet"
    for number in range(400):
        reporter.look(100.0 + number % 3)
        await asyncio.sleep(0.01)
    reporting.cancel()
    assert 7 <= len(reporter.heard) <= 9


@at_once
async def test_a_worker_of_a_lane_tells_its_lane_and_the_partitions_of_its_lanes_topics() -> None:
    reporter = Reporter()
    reporter.lane = "canary"
    reporter.partitions = frozenset({("chat.requests.canary.short", 1)})
    reporting = reporter.report()
    reporter.look(0.0)
    await asyncio.sleep(SOON_S)
    reporting.cancel()
    assert reporter.newest_report is not None
    assert (reporter.newest_report.lane, reporter.newest_report.partitions) == ("canary", {"short": (1,)})


def test_a_workers_name_ends_with_its_host_and_says_its_device() -> None:
    process, host = os.getpid(), re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname())
    assert re.fullmatch(rf"w-{process}\.[0-9a-f]{{8}}-{host}", worker_name())
    assert re.fullmatch(rf"w-{process}\.[0-9a-f]{{8}}\.MIG5e6f7a8b-{host}", worker_name(device="MIG-5e6f7a8b"))
    assert worker_name("pod-0", "MIG-5e6f7a8b") == "w-pod-0"


_POD = "a" * 56


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param([("node", {}), ("node", {})], id="containers on the host's network"),
        pytest.param([("node", {"device": "GPU-1"}), ("node", {"device": "GPU-1"})], id="workers of one GPU"),
        pytest.param([(f"{_POD}-abcde", {}), (f"{_POD}-bcdfg", {})], id="pods with long names"),
        pytest.param([("a" * 99, {}), ("a" * 98, {})], id="machines with long names"),
        pytest.param([("n", {"instance_id": "w"}), ("n", {"instance_id": "w", "lane": "canary"})], id="two lanes"),
        pytest.param([("n", {"instance_id": "a/b"}), ("n", {"instance_id": "a-b"})], id="characters no id may have"),
        pytest.param([("n", {"instance_id": _POD * 2}), ("n", {"instance_id": _POD * 3})], id="long instances"),
    ],
)
def test_two_workers_never_share_an_id(monkeypatch: pytest.MonkeyPatch, workers: list[tuple[str, Any]]) -> None:
    """Every container's process has the PID 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    names = set()
    for host, of in workers:
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        names.add(worker_name(**of))
    assert len(names) == len(workers)
    assert all(is_identifier(name) for name in names)


def test_a_static_worker_that_restarts_keeps_its_id() -> None:
    assert worker_name("pod/0") == worker_name("pod/0")
