"""Workers are started and ended as they are wanted, and the pods to end first are marked for Kubernetes."""

import asyncio
import json
import signal
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from ops.scaling.autoscale.autoscaler import Autoscaler, _decoded
from ops.scaling.autoscale.basis import Basis
from ops.scaling.autoscale.capacity import Capacity
from ops.scaling.autoscale.deletion_costs import DeletionCosts, ranked
from ops.scaling.autoscale.evidence import Evidence, Pool
from ops.scaling.autoscale.expectation import Expectation
from ops.scaling.autoscale.local_workers import LocalWorkers
from ops.scaling.autoscale.policy import Past, Sizing
from ops.scaling.forecast.calendar import Calendar
from ops.scaling.forecast.demand_forecast import DemandForecast
from shared.errors import SettingsError
from shared.kafka import Outgoing
from shared.process.clock import CLOCKS, Clocks, now_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.wire.codec import decode_scaling, msgpack_encode
from shared.wire.reports import WorkerReport
from shared.wire.scaling import ScalingRecord
from tests.support.builders.gateway import report
from tests.support.certificates import Authority
from tests.support.servers.called_server import Call, CalledServer, Reply
from workers.serving.capacity import worker_prefix

_PIDS = count(1_000_000)


@dataclass
class FakeChild:
    """A process that ends by `stop`."""

    process: Any = field(default_factory=lambda: SimpleNamespace(pid=next(_PIDS), returncode=1))
    running: bool = True
    signals: list[int] = field(default_factory=list)

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def stop(self, *, timeout_s: float) -> None:
        self.running = False

    @property
    def name(self) -> str:
        return f"{worker_prefix(self.process.pid)}0a1b2c3d-{gethostname()}"


@dataclass
class Machine:
    children: list[FakeChild] = field(default_factory=list)
    local: LocalWorkers = field(init=False)

    def __post_init__(self) -> None:
        self.local = LocalWorkers(self.start, 5.0)

    def start(self) -> Any:
        self.children.append(FakeChild())
        return self.children[-1]

    def live(self, *running: int) -> dict[str, WorkerReport]:
        """Return reports of the first children, with these numbers of requests."""
        return {
            child.name: report(child.name, running=n, host=gethostname())
            for child, n in zip(self.children, running, strict=False)
        }

    @property
    def leaving(self) -> list[int]:
        return [number for number, child in enumerate(self.children) if signal.SIGTERM in child.signals]


async def test_what_is_missing_is_started_once_and_others_workers_count() -> None:
    machine = Machine()
    others = {"w-1-elsewhere": report("w-1-elsewhere")}
    await machine.local.size(3, others)
    await machine.local.size(3, others)
    assert len(machine.children) == 2
    assert machine.local.loading(others | machine.live(0)) == 1


async def test_a_process_of_another_host_with_a_childs_pid_is_no_child() -> None:
    machine = Machine()
    await machine.local.size(1, {})
    name = f"{worker_prefix(machine.children[0].process.pid)}0a1b2c3d-far"
    assert machine.local.loading({name: report(name, host="far")}) == 1


async def test_the_least_busy_end_first_and_each_drains() -> None:
    machine = Machine()
    await machine.local.size(4, {})
    await machine.local.size(2, machine.live(3, 0, 4, 1))
    await machine.local.size(2, machine.live(3, 0, 4, 1))
    assert machine.leaving == [1, 3]
    assert [child.signals for child in machine.children] == [[], [signal.SIGTERM], [], [signal.SIGTERM]]
    await machine.local.size(3, machine.live(3, 0, 4, 1))
    assert len(machine.children) == 5, "those that leave are counted no more"


async def test_one_that_ends_by_itself_is_started_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ops.scaling.autoscale.local_workers.monotonic_s", lambda: now[0])
    machine = Machine()
    await machine.local.size(1, {})
    machine.children[0].running = False
    await machine.local.size(1, {})
    assert len(machine.children) == 1
    now[0] += 6.0
    await machine.local.size(1, {})
    assert len(machine.children) == 2


async def test_the_end_of_the_command_ends_them_all() -> None:
    machine = Machine()
    await machine.local.size(3, {})
    await machine.local.size(2, machine.live(0, 0, 0))
    await machine.local.close()
    assert not [child for child in machine.children if child.running]


async def test_the_leader_that_ends_leaves_its_group_before_its_workers_drain() -> None:
    """Else the next leader would wait for them."""
    order: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def stop(self) -> None:
            order.append(self.name)

        close = stop

    class Idle(Autoscaler):
        async def _lead(self) -> None:
            """Take no part."""

        _read_demand = _read_reports = _watch_lag = _lead

    names = ("hands", "leadership", "demand", "reports", "producer")
    unused: Any = dict.fromkeys(("kafka", "evidence", "expectation", "sizing", "measure"))
    parts: Any = {name: Part(name) for name in names}
    stop = asyncio.Event()
    stop.set()
    await Idle(**unused, **parts, cold_start_ms=0.0, dry=True).run(stop)
    assert order == ["leadership", "hands", "demand", "reports", "producer"]


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
async def test_a_wall_clock_that_jumps_hides_no_worker_and_dates_the_records(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """Records have the new time; which workers are there is judged by the process's own time."""
    wall_s, steady_s, written, sized = [1.7e9], [50.0], list[ScalingRecord](), list[int]()
    clocks = Clocks(lambda: steady_s[0], lambda: wall_s[0])

    class Stub(SimpleNamespace):
        async def leads(self) -> bool:
            return True

        async def num_partitions(self, _: str) -> int:
            return 24

        async def publish(self, record: Outgoing) -> None:
            written.append(decode_scaling(record.value or b""))

        async def size(self, _: int, live: dict[str, WorkerReport]) -> None:
            sized.append(len(live))

    unused: Any = dict.fromkeys(("demand", "reports"))
    stub: Any = Stub(loading=lambda _: None)
    autoscaler = Autoscaler(
        **unused,
        kafka=KafkaSettings(),
        evidence=Evidence(Pool(), service_ms={"short": 50.0}),
        expectation=Expectation(DemandForecast(), Calendar()),
        sizing=Sizing(carries=0.5, most=24),
        measure=lambda _: Capacity.given(0.5, 0.96),
        hands=stub,
        leadership=stub,
        producer=stub,
        cold_start_ms=0.0,
        dry=False,
    )
    token = CLOCKS.set(clocks)
    try:
        autoscaler._scaler = await autoscaler._size(Past(wanted=1))
        for second in range(240):
            wall_s[0], steady_s[0] = wall_s[0] + 1 + (jump_s if second == 120 else 0), steady_s[0] + 1
            autoscaler.evidence.hear_worker("w", report("w"), now_unix_ms())
            await autoscaler._turn()
    finally:
        CLOCKS.reset(token)
    assert set(sized) == {1}
    assert len(written) >= 4, "one a minute"
    assert abs(written[-1].unix_ms - wall_s[0] * 1_000) < 120_000


@pytest.mark.parametrize("carries", [None, 0.0, -0.5, float("nan")])
async def test_workers_too_slow_for_the_goal_are_still_sized(carries: float | None) -> None:
    """The records of chat.scaling keep their times: the next start would end likewise."""

    def measure(_: Basis) -> Capacity:
        if carries is not None:
            return Capacity.given(carries, 0.96)
        raise SettingsError("even at a twentieth of a worker's capacity too few come in time")

    async def num_partitions(_: str) -> int:
        return 24

    unused: Any = dict.fromkeys(("expectation", "hands", "leadership", "demand", "reports"))
    producer: Any = SimpleNamespace(num_partitions=num_partitions)
    sizing = Sizing(carries=0.0, attainment=0.96, least=1, most=100, stabilisation_ms=0.0)
    autoscaler = Autoscaler(
        **unused,
        kafka=KafkaSettings(),
        evidence=Evidence(Pool(), service_ms={"short": 1e6}),
        sizing=sizing,
        measure=measure,
        producer=producer,
        cold_start_ms=0.0,
        dry=True,
    )
    scaler = await autoscaler._size(Past())
    assert (scaler.sizing.carries, scaler.sizing.most) == (0.5, 24)


def test_a_record_of_the_future_binds_no_later_leader() -> None:
    def record(unix_ms: int) -> bytes:
        return msgpack_encode(
            ScalingRecord(pool="main", unix_ms=unix_ms, kind="minute", wanted=1, found=1, reason="test")
        )

    values = [record(1_000), b"broken", record(2**50), record(30_000)]
    assert [each.unix_ms for each in _decoded(values, 20_000.0)] == [1_000, 30_000]


COST = "controller.kubernetes.io/pod-deletion-cost"
PODS = "/api/v1/namespaces/shop/pods/"


def account(folder: Path) -> Path:
    for name, text in {"token": "t0ken", "namespace": "shop"}.items():
        (folder / name).write_text(text)
    (folder / "ca.crt").write_bytes(Authority(folder, "cluster").ca.read_bytes())
    return folder


def pods(**running: int) -> dict[str, WorkerReport]:
    """Return reports of workers in pods, with these numbers of eight slots in use."""
    return {f"w-1-{pod}": report(f"w-1-{pod}", running=taken, slots=8) for pod, taken in running.items()}


def test_only_the_least_busy_pods_that_are_to_go_have_a_cost() -> None:
    live = pods(a=3, b=0, c=8, d=1)
    assert ranked(live, 2) == {"b": -4, "d": -4}
    assert ranked(live, 3) == {"b": -4, "d": -4, "a": -3}
    assert ranked(live, 4)["c"] == -1
    assert ranked(live, 0) == ranked(live, -1) == {}
    assert ranked({"w-1-cut-0a1b2c3d4e5f": report("w-1-cut-0a1b2c3d4e5f", host="e")}, 1) == {"e": -1}
    assert ranked(live, 1, marked={"d"}) == {"d": -4}, "one request more or less marks no other pod"
    assert ranked(pods(a=1, b=2), 1, marked={"b"}) == {"a": -4}


async def test_marks_are_set_once_a_minute_and_taken_back_from_pods_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, refuses = [100.0], set[str]()
    monkeypatch.setattr("ops.scaling.autoscale.deletion_costs.monotonic_s", lambda: now_s[0])

    def answer(call: Call) -> Reply:
        return Reply(status=403 if call.path.removeprefix(PODS) in refuses else 200)

    sent: list[list[tuple[str, str | None]]] = []
    with CalledServer(answer).serve() as server:
        costs = DeletionCosts(httpx2.AsyncClient(base_url=server.url + PODS, trust_env=False), account(tmp_path))

        async def size(wanted: int, live: dict[str, WorkerReport], at_s: float) -> None:
            now_s[0] = at_s
            server.calls.clear()
            await costs.size(wanted, live)
            await costs._setting.drain()
            told = [(each.path.removeprefix(PODS), json.loads(each.body)["metadata"]) for each in server.calls]
            sent.append([(pod, metadata["annotations"][COST]) for pod, metadata in told])

        await size(3, pods(a=0, b=5, c=8), 100.0)
        await size(1, pods(a=0, b=5, c=8), 101.0)
        await size(1, pods(a=6, b=0, c=8), 130.0)
        await size(1, pods(a=6, b=0, c=8), 161.0)
        refuses.add("b")
        await size(2, pods(a=0, b=5, c=8), 222.0)
        refuses.clear()
        await size(2, pods(a=0, b=5, c=8), 283.0)
        await size(3, pods(a=0, b=5, c=8), 344.0)
        await size(3, pods(a=0, b=5, c=8), 405.0)
        await costs.close()
    nothing: list[tuple[str, str | None]] = []
    assert sent == [
        nothing,
        [("a", "-4"), ("b", "-2")],
        nothing,
        [("b", "-4"), ("a", "-1")],
        [("b", None)],
        [("b", None), ("a", "-4")],
        [("a", None)],
        nothing,
    ]


async def test_a_mark_is_sent_with_the_pods_account_and_a_missing_pod_is_no_failure(tmp_path: Path) -> None:
    with CalledServer(lambda _: Reply(status=404)).serve() as server:
        costs = DeletionCosts(httpx2.AsyncClient(base_url=server.url + PODS, trust_env=False), account(tmp_path))
        await costs.mark(1, pods(a=0, b=1))
        await costs.mark(1, pods(a=0, b=1))
        await costs.close()
    [call] = server.calls
    assert (call.method, call.path) == ("PATCH", f"{PODS}a")
    assert (call.headers["authorization"], call.headers["content-type"]) == (
        "Bearer t0ken",
        "application/merge-patch+json",
    )


async def test_the_api_server_is_reached_by_the_pods_account_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"token.*service account"):
        DeletionCosts.of({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    with pytest.raises(SettingsError, match="KUBERNETES_SERVICE_HOST"):
        DeletionCosts.of({}, account(tmp_path))
    costs = DeletionCosts.of({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert str(costs.http.base_url) == "https://[fd00::1]/api/v1/namespaces/shop/pods/"
    await costs.close()
