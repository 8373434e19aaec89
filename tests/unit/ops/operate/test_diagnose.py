"""The bottleneck is derived from the metrics: each part's fault, its evidence, and which fault explains which."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from ops.operate.diagnose import look
from ops.operate.diagnose.addresses import check_process, check_prometheus, check_way_in
from ops.operate.diagnose.commands import _own, looked_at
from ops.operate.diagnose.knowledge import causes
from ops.operate.diagnose.look import _socket
from ops.operate.diagnose.pages import Page, Window, parse_page
from ops.operate.diagnose.rules import RULES, found_in, worse
from ops.operate.diagnose.system import Answered, Probe, Process, Role, System
from shared.errors import SettingsError
from shared.settings import Settings, describe
from shared.settings.gateway import GatewaySettings
from shared.settings.worker import WorkerSettings
from shared.wire.topics import BUCKETS, TopicNames

ROOT = Path(__file__).parents[4]
RUNBOOKS = ROOT / "docs" / "runbooks"
SECONDS = 10.0
FAST = {"socket": Answered(0.001), "broker": Answered(0.01), "redis": Answered(0.001)}

Given = Mapping[str, float]


def page(samples: Given) -> Page:
    """A metrics page of these exposition lines."""
    return parse_page("".join(f"{name} {value}\n" for name, value in samples.items()))


def window(after: Given, before: Given | None = None) -> Window:
    return Window(page(before or {}), page(after), SECONDS)


def quiet_gateway(**more: float) -> Given:
    return {"replyline_gateway_workers": 1.0, 'replyline_ready{check="kafka"}': 1.0, **more}


def quiet_worker(more: Given | None = None) -> Given:
    return {'replyline_worker_load{what="slots"}': 8.0, 'replyline_worker_load{what="used"}': 2.0, **(more or {})}


def a_system(
    gateway: Given | None = None,
    worker: Given | None = None,
    lag: Mapping[str, int] | str | None = None,
    **probes: Probe,
) -> System:
    return System(
        processes=[
            Process(Role.GATEWAY, "http://g", window(gateway or quiet_gateway())),
            Process(Role.WORKER, "http://w", window(worker or quiet_worker())),
        ],
        lag=lag,
        **{**FAST, **probes},
    )


def histogram(name: str, below: float, count: float, labels: str = "") -> Given:
    """All observations in the bucket that ends at `below`."""
    sign = f"{labels}," if labels else ""
    return {
        f'{name}_bucket{{{sign}le="{below / 2}"}}': 0.0,
        f'{name}_bucket{{{sign}le="{below}"}}': count,
        f'{name}_bucket{{{sign}le="+Inf"}}': count,
        f"{name}_count{{{labels}}}" if labels else f"{name}_count": count,
        f"{name}_sum{{{labels}}}" if labels else f"{name}_sum": count * below,
    }


def busy(prefill: float, decode: float, transfer: float = 0.0) -> Given:
    parts = {"prefill": prefill, "decode": decode, "transfer": transfer}
    return {f'replyline_worker_step_seconds_sum{{kind="{kind}"}}': share * SECONDS for kind, share in parts.items()}


def answers(revision: str, *, kept: float, missed: float = 0.0, failed: float = 0.0) -> Given:
    """A worker's, and what it computes with."""
    counts = {"kept": kept, "missed": missed, "failed": failed, "withdrawn": 50.0}
    return quiet_worker(
        {
            f'replyline_worker_model_info{{model="shop",revision="{revision}",engine="onnx",release="1"}}': 1.0,
            **{f'replyline_worker_outcomes_total{{outcome="{name}"}}': count for name, count in counts.items()},
        }
    )


def counted(name: str, *, then: Given, now: Given) -> tuple[Given, Given]:
    """A histogram at both moments: observations by bound, each of that value."""

    def reading(found: Given) -> Given:
        bounds = sorted({*then, *now}, key=float)
        upto = {
            bound: sum(found.get(other, 0.0) for other in bounds if float(other) <= float(bound)) for bound in bounds
        }
        buckets = {f'{name}_bucket{{le="{bound}"}}': count for bound, count in upto.items()}
        total = sum(float(bound) * count for bound, count in found.items())
        return buckets | {f'{name}_bucket{{le="+Inf"}}': sum(found.values()), f"{name}_sum": total}

    both = {bound: then.get(bound, 0.0) + now.get(bound, 0.0) for bound in {*then, *now}}
    return reading(then), reading(both)


def a_worker(before: Given, after: Given) -> System:
    processes = [
        Process(Role.GATEWAY, "http://g", window(quiet_gateway())),
        Process(Role.WORKER, "http://w", window(quiet_worker(after), quiet_worker(before))),
    ]
    return System(processes=processes, **FAST)


def loads(*workers: tuple[float, float]) -> System:
    """Return workers of 8 slots, with these numbers of used slots and waiting requests."""
    pages = [
        quiet_worker({'replyline_worker_load{what="used"}': used, 'replyline_worker_load{what="waiting"}': waiting})
        for used, waiting in workers
    ]
    processes = [Process(Role.WORKER, f"http://w{number}", window(page)) for number, page in enumerate(pages)]
    return System(processes=[Process(Role.GATEWAY, "http://g", window(quiet_gateway())), *processes], **FAST)


def network(sent: float, speed: float, kv: float = 0.0) -> System:
    return a_system(
        worker=quiet_worker(
            {
                'replyline_machine_network_bytes_total{kind="sent"}': sent * SECONDS,
                "replyline_machine_network_speed_bytes": speed,
                'replyline_kv_bytes_total{what="save"}': kv * SECONDS,
            }
        )
    )


LONGER = counted("replyline_worker_prompt_tokens", then={"64": 900, "128": 100}, now={"128": 20, "512": 80})
AS_LONG = counted("replyline_worker_prompt_tokens", then={"64": 900, "128": 100}, now={"64": 90, "128": 10})
LUMPS = counted("replyline_worker_batch_rows", then={}, now={"1": 60, "2": 30, "4": 10, "8": 100})
STEADY = counted("replyline_worker_batch_rows", then={}, now={"1": 10, "2": 30, "4": 110, "8": 50})
ONE_WAITS = {'replyline_worker_load{what="waiting"}': 1.0}
FULL = {'replyline_worker_load{what="used"}': 8.0}
FAULTS = {
    "bandwidth": network(100e6, 125e6, kv=60e6),
    "skew": loads((8, 6), (1, 0)),
    "lengths": a_worker(LONGER[0], LONGER[1] | busy(0.45, 0.45)),
    "batches": a_worker(LUMPS[0], LUMPS[1] | ONE_WAITS),
    "process": System(processes=[Process(Role.GATEWAY, "http://g", "no answer: refused")], **FAST),
    "broker": a_system(quiet_gateway() | histogram("replyline_kafka_seconds", 0.8, 20, 'what="request"')),
    "redis": a_system(quiet_gateway() | {'replyline_history_unavailable_total{what="read"}': 3.0}),
    "gpu_memory": a_system(
        worker=quiet_worker(
            {
                'replyline_gpu_memory_bytes{gpu="0",state="used"}': 79e9,
                'replyline_gpu_memory_bytes{gpu="0",state="total"}': 80e9,
            }
        )
    ),
    "gateway_loop": a_system(quiet_gateway() | histogram("replyline_event_loop_lag_seconds", 0.25, 40)),
    "network": a_system(socket=Answered(0.4)),
    "clients": a_system(quiet_gateway() | {'replyline_gateway_closes_total{code="4008"}': 1.0}),
    "kv": a_system(worker=quiet_worker(busy(0.2, 0.2, 0.4))),
    "model": System(
        processes=[
            Process(Role.GATEWAY, "http://g", window(quiet_gateway())),
            Process(Role.WORKER, "http://a", window(answers("1f0e", kept=40))),
            Process(Role.WORKER, "http://b", window(answers("77ab", kept=20, missed=15, failed=5))),
        ],
        **FAST,
    ),
    "prefill": a_system(worker=quiet_worker(FULL | busy(0.7, 0.2))),
    "decode": a_system(worker=quiet_worker(FULL | busy(0.2, 0.7))),
    "queue": a_system(lag={"long": 40, "short": 0}),
}


def test_every_rule_has_a_fault_here_and_a_cause_to_explain_it() -> None:
    assert FAULTS.keys() == RULES.keys() == causes().keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_part_at_fault_is_named_and_no_other(name: str) -> None:
    assert list(found_in(FAULTS[name])) == [name]


def test_nothing_is_at_fault_where_nothing_is_at_its_limit() -> None:
    assert found_in(a_system(lag={"long": 2})) == {}
    assert found_in(a_system(worker=quiet_worker(busy(0.0, 1.0)))) == {}, "one long answer keeps an engine busy"


@pytest.mark.parametrize("reason", ["deadline", "infeasible", "breaker"])
@pytest.mark.parametrize(("shares", "name"), [((0.0, 0.3), "queue"), ((0.1, 0.8), "decode"), ((0.8, 0.1), "prefill")])
def test_an_engine_is_at_fault_if_gateways_get_no_answer_from_it_in_time(
    reason: str, shares: tuple[float, float], name: str
) -> None:
    """A gateway that predicts a late answer sends no question, so a slow engine has free slots and no queue."""
    gateway = quiet_gateway() | {f'replyline_gateway_fallbacks_total{{reason="{reason}"}}': 3.0}
    assert next(iter(found_in(a_system(gateway, quiet_worker(busy(*shares)))))) == name


@pytest.mark.parametrize("reason", ["share", "held", "memory"])
def test_a_question_that_a_worker_had_time_for_is_no_evidence_against_it(reason: str) -> None:
    gateway = quiet_gateway() | {f'replyline_gateway_fallbacks_total{{reason="{reason}"}}': 30.0}
    assert found_in(a_system(gateway, quiet_worker(busy(0.1, 0.8)))) == {}


def test_a_load_that_is_even_steady_or_as_long_as_before_is_no_fault() -> None:
    assert found_in(network(60e6, 125e6)) == {}
    assert found_in(network(100e6, 0.0)) == {}, "a device that does not say what it carries is not judged"
    assert found_in(loads((8, 2), (1, 0))) == {}, "what waits for a moment is no skew"
    assert found_in(a_worker(AS_LONG[0], AS_LONG[1] | busy(0.45, 0.45))) == {}
    assert found_in(a_worker(LONGER[0], LONGER[1] | busy(0.1, 0.1))) == {}, "longer, and no matter"
    assert found_in(a_worker(STEADY[0], STEADY[1] | ONE_WAITS)) == {}
    assert found_in(a_worker(*LUMPS)) == {}, "nobody waits"


def test_kvs_part_of_a_full_network_is_told() -> None:
    (line,) = found_in(FAULTS["bandwidth"])["bandwidth"]
    assert line == (
        "the machine of http://w has sent 100 MB/s, 80% of what its network carries; 60% of it is this worker's KV"
    )


def test_a_model_is_compared_with_those_beside_it_alone_and_by_enough_answers() -> None:
    assert found_in(FAULTS["model"])["model"] == [
        "shop 77ab (release 1) fails or misses its promise in 50% of 40 answers, the others in 0% of 40"
    ]
    for one, other in (
        (answers("1f0e", kept=40), answers("1f0e", kept=20, missed=20)),
        (answers("1f0e", kept=40), answers("77ab", kept=1, missed=8)),
        (answers("1f0e", kept=20, missed=18), answers("77ab", kept=20, missed=20)),
        (answers("1f0e", kept=40), answers("77ab", kept=38, missed=2)),
    ):
        workers = [Process(Role.WORKER, url, window(each)) for url, each in (("http://a", one), ("http://b", other))]
        gateway = Process(Role.GATEWAY, "http://g", window(quiet_gateway()))
        assert found_in(System(processes=[gateway, *workers], **FAST)) == {}


@given(st.integers(10, 500), st.integers(10, 500), st.floats(0, 1), st.floats(0, 1))
def test_two_models_are_never_each_worse_than_the_other(
    answers: int, others: int, share: float, other_share: float
) -> None:
    bad, other_bad = round(answers * share), round(others * other_share)
    found = worse(bad, answers, other_bad, others), worse(other_bad, others, bad, answers)
    assert found != (True, True)
    if found[0]:
        assert bad / answers > other_bad / others


def test_what_explains_the_rest_is_named_first() -> None:
    """A broker that is away fills queues; full engines leave requests waiting."""
    away = a_system(lag={"long": 40}, broker="no Kafka at 127.0.0.1:9092")
    assert next(iter(found_in(away))) == "broker"
    full = a_system(
        worker=quiet_worker(busy(0.2, 0.75) | {'replyline_worker_load{what="waiting"}': 30.0}), lag={"short": 90}
    )
    assert list(found_in(full)) == ["decode", "queue"]


async def test_where_no_gateway_is_known_that_is_said_and_no_network_is_blamed() -> None:
    """A Prometheus that discovers its targets knows none of those that are gone. Without an address there is no way in
    to try."""
    probes = {**FAST, "socket": await _socket("")}
    system = System(processes=[Process(Role.WORKER, "http://w", window(quiet_worker()))], **probes)
    assert found_in(system) == {"process": ["no gateway is known: name one with --gateway"]}
    assert looked_at(system, "") == "1 of 1 process answered; customers connect to: unknown (--url names it)"


async def test_what_waits_is_asked_of_each_lane_that_has_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = TopicNames().of_lane("canary", request_partitions=1)

    async def described(_: object) -> dict[str, int]:
        return {**topics, "chat.requests.light.short": 1}

    async def waiting(_: object, group: str, of: list[str]) -> dict[str, int]:
        return {topic: len(group) for topic in of}

    monkeypatch.setattr(look, "describe_topics", described)
    monkeypatch.setattr(look, "group_lag", waiting)
    champions, canarys = len("replyline-workers"), len("replyline-workers.canary")
    assert await look._lag(Settings()) == {
        **dict.fromkeys(BUCKETS, champions),
        **{f"{bucket} of lane canary": canarys for bucket in BUCKETS},
    }


def test_a_lag_that_was_not_told_is_said_to_be_so() -> None:
    """This is not a lag of 0: whether requests wait is unknown."""
    system = a_system(lag="nobody tells what replyline-workers has committed")
    assert found_in(system) == {}
    told = looked_at(system, "ws://g/ws")
    assert told.endswith("; the group's lag: unknown, nobody tells what replyline-workers has committed")
    assert "lag" not in looked_at(a_system(lag={}), "ws://g/ws")


@pytest.mark.parametrize("settings", [GatewaySettings, WorkerSettings])
def test_a_process_whose_port_is_any_free_one_has_no_address_by_the_settings(
    settings: type[GatewaySettings | WorkerSettings],
) -> None:
    """As docs/lifecycle.md sets it for workers in addition to the demo's: port 0 is no address to ask."""
    assert _own(settings(metrics_port=0)) == []
    assert _own(settings()) == [f"127.0.0.1:{settings().metrics_port}"]


def test_that_no_worker_is_known_is_said() -> None:
    system = a_system()
    system.processes[:] = [found for found in system.processes if found.role is not Role.WORKER]
    assert "; no worker is known (--worker names one)" in looked_at(system, "ws://g/ws")
    assert "no worker is known" not in looked_at(a_system(), "ws://g/ws")


@pytest.mark.parametrize(
    "address", ["10.0.0.4:808O", "10.0.0.4", ":8080", "a:0", "a:70000", "a:1/metrics", "a b:1", ""]
)
def test_what_can_be_no_address_of_a_process_is_refused(address: str) -> None:
    """Before anything is asked, with what to write: an example with the default port of the metrics."""
    for option, settings in (("--gateway", GatewaySettings()), ("--worker", WorkerSettings())):
        with pytest.raises(SettingsError, match=rf"^{option} .*: write HOST:PORT .*:{settings.metrics_port}$"):
            check_process(option, address)


@pytest.mark.parametrize(
    "url", ["ws://h:808O/ws", "http://h:8080/ws", "h:8080", "ws:///ws", "ws://h:0/ws", "ws://a b/"]
)
def test_what_can_be_no_way_in_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^--url .*: write ws://HOST:PORT/ws"):
        check_way_in("--url", url)


@pytest.mark.parametrize("url", ["prometheus:9090", "ws://h:9090", "http://", "http://h:909O"])
def test_what_can_be_no_address_of_prometheus_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^--prometheus .*: write http://HOST:PORT"):
        check_prometheus("--prometheus", url)


@pytest.mark.parametrize("address", ["10.0.0.4:8080", "gateway-0.shop.internal:80", "[::1]:8081"])
def test_an_address_is_taken(address: str) -> None:
    check_process("--worker", address)
    check_way_in("--url", f"ws://{address}/ws")
    check_prometheus("--prometheus", f"http://{address}/prometheus/")
    check_way_in("--url", "wss://chat.example/ws?token=1")


@pytest.mark.parametrize(("probe", "name"), [("socket", "network"), ("broker", "broker"), ("redis", "redis")], ids=str)
def test_who_does_not_answer_is_named_with_what_it_said(probe: str, name: str) -> None:
    found = found_in(a_system(**{probe: "connection refused"}))
    assert list(found) == [name]
    assert "connection refused" in found[name][0]


@pytest.mark.parametrize(("check", "name"), [("engine", "process"), ("kafka", "broker"), ("redis", "redis")])
def test_what_a_process_waits_for_is_named(check: str, name: str) -> None:
    found = found_in(a_system({**quiet_gateway(), f'replyline_ready{{check="{check}"}}': 0.0}))
    assert found == {name: [f"http://g is not ready: {check}"]}


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0, 1e6), min_size=1), st.floats(0, 1e6))
def test_a_counter_never_loses(before: dict[str, float], after: float) -> None:
    """A counter that fell was restarted, and has counted this much since."""
    series = {f'x_total{{k="{key}"}}': value for key, value in before.items()}
    found = window({'x_total{k="a"}': after}, series)
    had = sum(before.values())
    assert found.gain("x_total") == pytest.approx(after - had if after >= had else after)
    assert found.rate("x_total") == pytest.approx(found.gain("x_total") / SECONDS)


@given(st.lists(st.floats(0.001, 50), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_quantile_is_the_bound_of_the_bucket_it_falls_into(observed: list[float], q: float) -> None:
    bounds = [0.01, 0.1, 1.0, 10.0]
    samples: dict[str, float] = {f'h_bucket{{le="{bound}"}}': sum(v <= bound for v in observed) for bound in bounds}
    samples |= {'h_bucket{le="+Inf"}': len(observed), "h_count": len(observed), "h_sum": sum(observed)}
    found = window(samples).quantile("h", q)
    assert found is not None
    below = sum(value <= found for value in observed)
    assert below >= q * len(observed)
    lower = max((bound for bound in bounds if bound < found), default=0.0)
    assert sum(value <= lower for value in observed) < q * len(observed)


def test_every_number_that_a_rule_reads_is_declared() -> None:
    """A misspelt one would be nought for ever."""
    import shared.telemetry.metrics  # noqa: F401 - declares them

    declared = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    declared |= {family.name for family in REGISTRY.collect()}
    declared |= {f"{family.name}_total" for family in REGISTRY.collect() if family.type == "counter"}
    read = set(
        re.findall(r'"((?:replyline|process)_\w+)"', (ROOT / "ops" / "operate" / "diagnose" / "rules.py").read_text())
    )
    histograms = {family.name for family in REGISTRY.collect() if family.type == "histogram"}
    assert {name for name in read if name not in declared and name.removesuffix("_count") not in histograms} == set()


def _anchors(file: Path) -> set[str]:
    titles = re.findall(r"^##+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", RULES)
def test_a_causes_runbook_and_settings_exist(name: str) -> None:
    cause = causes()[name]
    file, _, anchor = cause.runbook.partition("#")
    assert anchor in _anchors(RUNBOOKS / file)
    known = {variable for variable, *_ in describe()}
    said = " ".join([*cause.because, *cause.remedies])
    assert set(re.findall(r"REPLYLINE_[A-Z_]+[A-Z]", said)) <= known
    assert cause.symptom
    assert cause.because
    assert cause.remedies


def test_every_alert_has_a_cause_and_every_cause_names_alerts_that_exist() -> None:
    rules = yaml.safe_load((ROOT / "ops" / "alerts" / "rules.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    named = {alert for cause in causes().values() for alert in cause.alerts}
    assert named == alerts
