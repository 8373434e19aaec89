"""The doctor separates required parts from optional ones, each with a remedy: for the demo by the needs of `make demo`,
in production by those of a gateway and a worker.
"""

import dataclasses
import re
from typing import Any

import pytest

from ops.command_line import output
from ops.operate.doctor.checks import gather, print_table, purpose_of
from ops.operate.doctor.kv_memory import KvFacts, RedisMemory
from ops.operate.doctor.machine import MachineFacts
from ops.operate.doctor.row import CheckRow, Status
from ops.operate.doctor.rows import Facts, Purpose, judge, nothing_is_missing, verdict
from ops.operate.doctor.services import ServiceFacts
from ops.stack.port_use import PortUse
from shared.settings import Settings
from shared.wire.topic_layout import TopicCopies

COMPLETE = Facts(
    machine=MachineFacts(
        platform="linux",
        python=(3, 12, 1),
        cores=2,
        memory_gb=8.0,
        disk_gb=20.0,
        missing_modules={"onnx": (), "dev": ()},
        librdkafka="librdkafka.so.1",
        redis_server="redis-server",
        java=17,
        maven="mvn",
        chromium="chromium",
    ),
    services=ServiceFacts(
        kafka={"127.0.0.1:9092": True},
        redis={"127.0.0.1:6379": True},
        history_memory=RedisMemory(64 << 20, "noeviction"),
        kv_memory=RedisMemory(256 << 20, "allkeys-lru"),
        has_kv_redis=True,
    ),
    port=8080,
    port_use=PortUse.FREE,
    model_dir=".models/small",
    model_prepared=True,
    kv=KvFacts(
        precision="fp16", session_bytes={"exact": 46_000_000, "fp16": 23_000_000, "int8": 12_000_000}, host_mib=512
    ),
)


def _with(facts: Facts, **changes: Any) -> Facts:
    """Return the facts changed, each in the part to which it belongs."""
    for name, value in changes.items():
        part = next((part for part in ("machine", "services") if hasattr(getattr(facts, part), name)), None)
        if part is None:
            facts = dataclasses.replace(facts, **{name: value})
        else:
            facts = dataclasses.replace(facts, **{part: dataclasses.replace(getattr(facts, part), **{name: value})})
    return facts


# As in the container's image, which contains no part of the demo and of the tests.
BARE = _with(
    COMPLETE,
    missing_modules={"onnx": (), "dev": ("pytest",)},
    librdkafka=None,
    redis_server=None,
    java=None,
    maven=None,
    chromium=None,
)


def _row(facts: Facts, name: str, purpose: Purpose = "demo") -> CheckRow:
    return next(row for row in judge(facts, purpose) if row.name == name)


def _last_line(facts: Facts, purpose: Purpose = "demo") -> str:
    return verdict(judge(facts, purpose), facts, purpose)


@pytest.mark.parametrize("purpose", ["demo", "production"])
def test_a_complete_machine_needs_nothing(purpose: Purpose) -> None:
    """Every row is ok and none has a remedy."""
    rows = judge(COMPLETE, purpose)
    assert {row.status for row in rows} == {Status.OK}
    assert {row.remedy for row in rows} == {""}
    assert nothing_is_missing(rows)


@pytest.mark.parametrize(
    ("lack", "name", "remedy"),
    [
        ({"python": (3, 10, 9)}, "Python", "make setup"),
        ({"missing_modules": {"onnx": ("gguf",)}}, "CPU engine", "make setup"),
        ({"librdkafka": None}, "embedded Kafka", "make setup"),
        ({"librdkafka": None, "platform": "darwin"}, "embedded Kafka", "docker compose up (the embedded Kafka runs on"),
        ({"redis_server": None}, "embedded Redis", "make setup (or: apt-get install redis-server)"),
        ({"port_use": PortUse.OTHER}, "port 8080", "make demo PORT=8081"),
        ({"disk_gb": 0.2}, "disk", "free 1.5 GB"),
    ],
)
def test_what_the_demo_cannot_do_without_is_missing(lack: dict[str, object], name: str, remedy: str) -> None:
    """The row names the command to type, and the demo does not start."""
    facts = _with(COMPLETE, **lack)
    row = _row(facts, name)
    assert row.status is Status.MISSING
    assert row.remedy.startswith(remedy) or remedy in row.remedy.split(": ")
    assert _last_line(facts) == "make demo cannot run yet: see the rows marked missing."


@pytest.mark.parametrize(
    ("lack", "name", "remedy"),
    [
        ({"model_prepared": False}, "model", "replyline model prepare"),
        ({"cores": 1}, "cores", "2 or more"),
        ({"memory_gb": 1.0}, "memory", "2 GB"),
        ({"missing_modules": {"dev": ("pytest",)}}, "test tools", "make test"),
        ({"java": 11}, "Java", "openjdk-17"),
        ({"maven": None}, "Maven", "apt-get install maven"),
        ({"chromium": None}, "Chromium", "apt-get install chromium"),
        ({"kv_memory": RedisMemory(1 << 30, "noeviction")}, "Redis of the KV", "maxmemory-policy allkeys-lru"),
        ({"kv_memory": RedisMemory(0, "noeviction")}, "Redis of the KV", "set maxmemory"),
    ],
)
def test_what_the_demo_can_do_without_is_a_warning(lack: dict[str, object], name: str, remedy: str) -> None:
    """The row says what to type, and the demo may start."""
    facts = _with(COMPLETE, **lack)
    row = _row(facts, name)
    assert row.status is Status.WARN
    assert remedy in row.remedy
    assert _last_line(facts) == "make demo can run."


@pytest.mark.parametrize("purpose", ["demo", "production"])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("port_use", [PortUse.OTHER, PortUse.REPLYLINE, PortUse.FREE])
def test_outside_a_checkout_no_row_names_make_or_a_compose_file(
    monkeypatch: pytest.MonkeyPatch, purpose: Purpose, platform: str, port_use: PortUse
) -> None:
    """A wheel has neither. Everything is missing, so every row has its remedy."""
    for module in ("ops.stack.checkout", "ops.stack.embedded"):
        monkeypatch.setattr(f"{module}.IN_CHECKOUT", False)
    nothing = {"librdkafka": None, "redis_server": None, "java": None, "maven": None, "chromium": None}
    lack = {"python": (3, 10, 9), "missing_modules": {"onnx": ("gguf",), "dev": ("pytest",)}, "model_prepared": False}
    away = {"kafka": {"127.0.0.1:9092": False}, "redis": {"127.0.0.1:6379": False}}
    facts = _with(COMPLETE, **nothing, **lack, **away, platform=platform, port_use=port_use)
    rows = judge(facts, purpose)
    text = "\n".join([verdict(rows, facts, purpose), *(f"{row.detail} {row.remedy}" for row in rows)])
    assert not re.search(r"\bmake\b|docker compose", text), text
    assert purpose == "production" or "pip install 'replyline[embedded]'" in text or platform == "darwin"


def test_beside_a_running_demo_nothing_is_missing() -> None:
    """The port is taken by what the port is for."""
    facts = _with(COMPLETE, port_use=PortUse.REPLYLINE)
    assert _row(facts, "port 8080") == CheckRow("port 8080", Status.OK, "Replyline answers there")
    assert _last_line(facts).startswith("Replyline runs on port 8080.")
    assert nothing_is_missing(judge(facts, "demo"))


def test_in_production_nothing_is_asked_that_only_the_demo_and_the_tests_need() -> None:
    facts = _with(BARE, port_use=PortUse.REPLYLINE, disk_gb=0.1)
    assert {row.status for row in judge(facts, "production")} == {Status.OK}
    assert _last_line(facts, "production").startswith("A gateway and a worker have here what they need.")
    assert not nothing_is_missing(judge(BARE, "demo"))


@pytest.mark.parametrize(
    ("lack", "name", "remedy"),
    [
        ({"python": (3, 10, 9)}, "Python", "install Python 3.11"),
        ({"model_prepared": False}, "model", "replyline model prepare"),
        ({"kafka": {"broker:9092": False}}, "Kafka broker:9092", "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"),
        ({"kafka_refusal": "Kafka at broker:9093 hangs up"}, "Kafka's reply", "the settings named there"),
        ({"redis": {"cache:6379": False}}, "Redis cache:6379", "REPLYLINE_REDIS__URL"),
        ({"redis_refusals": ["WRONGPASS"]}, "Redis' reply", "REPLYLINE_REDIS__URL"),
        ({"redis_refusals": ["Timeout reading from socket"]}, "Redis' reply", "restart it if it is stopped"),
    ],
)
def test_the_doctor_lists_missing_requirements_of_both_production_processes(
    lack: dict[str, object], name: str, remedy: str
) -> None:
    facts = _with(COMPLETE, **lack)
    row = _row(facts, name, "production")
    assert row.status is Status.MISSING
    assert remedy in row.remedy
    assert "demo" not in row.detail + row.remedy
    assert "cannot serve from here yet" in _last_line(facts, "production")


@pytest.mark.parametrize(
    ("lack", "name", "remedy"),
    [
        ({"port_use": PortUse.OTHER}, "port 8080", "for a gateway: "),
        (
            {"missing_modules": {"onnx": ("onnxruntime",)}},
            "CPU engine",
            "for a worker: pip install 'replyline[onnx]'",
        ),
        ({"kafka": {"a:9092": False, "b:9092": True}}, "Kafka a:9092", "start it"),
        ({"memory_gb": 1.0}, "memory", "2 GB"),
    ],
)
def test_what_only_one_of_them_needs_in_production_is_a_warning(
    lack: dict[str, object], name: str, remedy: str
) -> None:
    """And one broker of several that is away."""
    facts = _with(COMPLETE, **lack)
    row = _row(facts, name, "production")
    assert row.status is Status.WARN
    assert row.remedy.startswith(remedy)
    assert nothing_is_missing(judge(facts, "production"))
    assert "one may need what a row marked warn names" in _last_line(facts, "production")
    assert "have here what they need" not in _last_line(facts, "production")


def test_an_engine_of_the_gpu_does_not_need_the_cpus() -> None:
    facts = _with(COMPLETE, uses_cpu_engine=False, missing_modules={"onnx": ("onnxruntime",)})
    assert "CPU engine" not in {row.name for row in judge(facts, "production")}


@pytest.mark.parametrize(
    ("values", "purpose"),
    [
        ({}, "demo"),
        ({"gateway": {"port": 9000}, "kafka": {"topic_prefix": "shop."}}, "demo"),
        ({"kafka": {"bootstrap_servers": "broker:9092"}}, "production"),
        ({"redis": {"url": "redis://cache:6379/0"}}, "production"),
    ],
)
def test_who_says_where_kafka_or_redis_is_asks_for_production(values: dict[str, object], purpose: Purpose) -> None:
    assert purpose_of(Settings.model_validate(values)) == purpose


def test_it_is_told_how_many_sessions_fit_where() -> None:
    """In the configured precision; others may exist next to it."""
    kept = _row(COMPLETE, "session KV").detail
    assert "fp16: 23.0 MB for 1,000 tokens" in kept
    assert "exact 46,000, fp16 23,000, int8 12,000" in kept
    assert "512 MiB of host memory: 23 sessions" in kept
    assert "maxmemory 256 MiB: 11 sessions of 1,000 tokens, allkeys-lru" in _row(COMPLETE, "Redis of the KV").detail
    unlimited = _with(COMPLETE, kv_memory=RedisMemory(0, "noeviction"))
    assert "unlimited" in _row(unlimited, "Redis of the KV").detail


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_a_redis_that_evicts_what_must_not_be_lost_is_told(policy: str) -> None:
    """Each key has its time, so that `volatile` spares none of them. A demo may lose them."""
    facts = _with(COMPLETE, history_memory=RedisMemory(64 << 20, policy))
    row = _row(facts, "Redis of the history", "production")
    assert row.status is Status.WARN
    assert f"maxmemory 64 MiB, {policy}: evicts history, hand-offs, and that a conversation was erased" in row.detail
    assert row.remedy == "redis-cli config set maxmemory-policy noeviction"
    alone = _with(facts, has_kv_redis=False)
    assert _row(alone, "Redis of the history", "production").remedy.endswith("REPLYLINE_KV_REDIS__URL")
    assert "Redis of the history" not in {row.name for row in judge(facts, "demo")}


def test_one_redis_for_both_is_told_to_become_two() -> None:
    """With any eviction policy, one Redis is wrong for one of the two uses."""
    facts = _with(COMPLETE, has_kv_redis=False)
    assert _row(facts, "Redis of the KV", "production").status is Status.OK
    full = _with(facts, kv_memory=facts.services.history_memory)
    assert "REPLYLINE_KV_REDIS__URL" in _row(full, "Redis of the KV", "production").remedy


def test_nothing_is_told_of_sessions_where_no_kv_is_kept() -> None:
    names = {row.name for row in judge(_with(COMPLETE, kv=None), "demo")}
    assert not names & {"session KV", "Redis of the KV"}
    assert gather(Settings.model_validate({"kv": {"enabled": False}})).kv is None


@pytest.mark.parametrize("purpose", ["demo", "production"])
def test_every_remedy_names_a_setting_that_exists(purpose: Purpose) -> None:
    """A variable that the table names is an existing setting."""
    facts = _with(COMPLETE, memory_gb=0.5, kafka={"a:1": False}, redis={"b:2": False}, port_use=PortUse.OTHER)
    settings = Settings()
    remedies = [row.remedy for row in judge(facts, purpose)]
    named = {word for remedy in remedies for word in remedy.replace("=", " ").split() if "REPLYLINE_" in word}
    assert len(named) >= 3
    for variable in named:
        group, name = variable.removeprefix("REPLYLINE_").lower().split("__")
        assert hasattr(getattr(settings, group), name)


THREE = TopicCopies("chat.replies", 3, 3, 3, 2, 900_000)


@pytest.mark.parametrize(
    ("facts", "name", "status", "remedy"),
    [
        ({"copies": [THREE]}, "Kafka's copies", Status.OK, ""),
        ({"copies": [dataclasses.replace(THREE, replicas=1)]}, "Kafka's copies", Status.MISSING, "reassign"),
        ({"copies": [dataclasses.replace(THREE, min_in_sync=1)]}, "Kafka's copies", Status.MISSING, "min.insync"),
        (
            {"copies": [dataclasses.replace(THREE, in_sync=2)]},
            "copies in sync",
            Status.WARN,
            "start the missing broker",
        ),
        ({"copies": [dataclasses.replace(THREE, kept_ms=604_800_000)]}, "retention", Status.WARN, "retention.ms="),
        ({"copies": [dataclasses.replace(THREE, kept_ms=-1)]}, "retention", Status.WARN, "retention.ms="),
        ({"copies": [dataclasses.replace(THREE, kept_ms=None)]}, "retention", Status.OK, ""),
        ({"copies": [THREE]}, "topics' settings", Status.OK, ""),
        (
            {"copies": [THREE], "broken_promises": ["chat.versions has cleanup.policy=delete; kafka-configs.sh x"]},
            "topics' settings",
            Status.MISSING,
            "kafka-configs.sh",
        ),
        ({"has_origins": False}, "origins", Status.WARN, "ALLOWED_ORIGINS=https://"),
        ({"has_cursor_secret": False}, "cursor secret", Status.WARN, "CURSOR_SECRET_FILE"),
    ],
)
def test_in_production_what_is_weak_or_open_is_told(
    facts: dict[str, object], name: str, status: Status, remedy: str
) -> None:
    row = _row(_with(COMPLETE, **facts), name, "production")
    assert row.status is status
    assert remedy in row.remedy
    assert bool(remedy) == bool(row.remedy)


def test_a_row_is_one_line_where_no_terminal_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = "wide " * 40 + "end"
    print_table([CheckRow("port 8080", Status.OK, found)], output())
    assert found in capsys.readouterr().out
