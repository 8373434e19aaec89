"""The doctor tells what `make demo` needs from what is only nice to have, each with a remedy."""

import dataclasses
from io import StringIO

import pytest
from rich.console import Console

from ops.doctor import Facts, Row, Status, demo_can_run, gather, judge, print_table
from ops.kv_memory import KvFacts, RedisMemory
from shared.settings import Settings

COMPLETE = Facts(
    python=(3, 12, 1),
    cores=2,
    memory_gb=8.0,
    disk_gb=20.0,
    port=8080,
    port_free=True,
    model_dir=".models/small",
    model_prepared=True,
    missing_modules={"onnx": (), "dev": ()},
    librdkafka="librdkafka.so.1",
    redis_server="redis-server",
    java=17,
    maven="mvn",
    chromium="chromium",
    kafka={"127.0.0.1:9092": True},
    redis={"127.0.0.1:6379": True},
    kv=KvFacts(
        precision="fp16", session_bytes={"exact": 46_000_000, "fp16": 23_000_000, "int8": 12_000_000}, host_mib=512
    ),
    redis_memory=RedisMemory(256 << 20, "allkeys-lru"),
)


def _row(facts: Facts, name: str) -> Row:
    return next(row for row in judge(facts) if row.name == name)


def test_a_complete_machine_needs_nothing() -> None:
    """Every row is ok and none has a remedy."""
    rows = judge(COMPLETE)
    assert {row.status for row in rows} == {Status.OK}
    assert {row.remedy for row in rows} == {""}
    assert demo_can_run(rows)


@pytest.mark.parametrize(
    ("lack", "name", "remedy"),
    [
        ({"python": (3, 10, 9)}, "Python", "make setup"),
        ({"missing_modules": {"onnx": ("gguf",)}}, "CPU engine", "replyline[onnx]"),
        ({"librdkafka": None}, "embedded Kafka", "confluent-kafka"),
        ({"redis_server": None}, "embedded Redis", "apt-get install redis-server"),
        ({"port_free": False}, "port 8080", "make demo PORT=8081"),
        ({"disk_gb": 0.2}, "disk", "free 1.5 GB"),
    ],
)
def test_what_the_demo_cannot_do_without_is_missing(lack: dict[str, object], name: str, remedy: str) -> None:
    """The row says what to type, and the demo is told not to start."""
    facts = dataclasses.replace(COMPLETE, **lack)
    row = _row(facts, name)
    assert row.status is Status.MISSING
    assert remedy in row.remedy
    assert not demo_can_run(judge(facts))


@pytest.mark.parametrize(
    ("lack", "name", "remedy"),
    [
        ({"model_prepared": False}, "model", "replyline model prepare"),
        ({"cores": 1}, "cores", "2 or more"),
        ({"memory_gb": 1.0}, "memory", "2 GB"),
        ({"missing_modules": {"dev": ("pytest",)}}, "test tools", "make test"),
        ({"java": None}, "Java", "openjdk-17"),
        ({"java": 11}, "Java", "openjdk-17"),
        ({"maven": None}, "Maven", "apt-get install maven"),
        ({"chromium": None}, "Chromium", "apt-get install chromium"),
        ({"kafka": {"broker:9092": False}}, "Kafka broker:9092", "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"),
        ({"kafka_refusal": "Kafka at broker:9093 hangs up"}, "Kafka's door", "the settings that it names"),
        ({"redis": {"cache:6379": False}}, "Redis cache:6379", "REPLYLINE_REDIS__URL"),
        ({"redis_memory": RedisMemory(1 << 30, "noeviction")}, "Redis memory", "maxmemory-policy allkeys-lru"),
        ({"redis_memory": RedisMemory(0, "noeviction")}, "Redis memory", "set maxmemory"),
    ],
)
def test_what_the_demo_can_do_without_is_a_warning(lack: dict[str, object], name: str, remedy: str) -> None:
    """The row says what to type, and the demo may start."""
    facts = dataclasses.replace(COMPLETE, **lack)
    row = _row(facts, name)
    assert row.status is Status.WARN
    assert remedy in row.remedy
    assert demo_can_run(judge(facts))


def test_it_is_told_how_many_sessions_fit_where() -> None:
    """In the precision that is set; the others stand beside it."""
    kept = _row(COMPLETE, "session KV").detail
    assert "fp16: 23.0 MB for 1,000 tokens" in kept
    assert "exact 46,000, fp16 23,000, int8 12,000" in kept
    assert "512 MiB of host memory: 23 sessions" in kept
    assert "maxmemory 256 MiB: 11 sessions of 1,000 tokens, allkeys-lru" in _row(COMPLETE, "Redis memory").detail
    unlimited = dataclasses.replace(COMPLETE, redis_memory=RedisMemory(0, "noeviction"))
    assert "unlimited" in _row(unlimited, "Redis memory").detail


def test_nothing_is_told_of_sessions_where_no_kv_is_kept() -> None:
    names = {row.name for row in judge(dataclasses.replace(COMPLETE, kv=None))}
    assert not names & {"session KV", "Redis memory"}
    assert gather(Settings.model_validate({"kv": {"enabled": False}})).kv is None


def test_every_remedy_names_a_setting_that_exists() -> None:
    """A variable that the table tells a user to set is one that the settings know."""
    facts = dataclasses.replace(COMPLETE, memory_gb=0.5, kafka={"a:1": False}, redis={"b:2": False})
    settings = Settings()
    named = {word for row in judge(facts) for word in row.remedy.replace("=", " ").split() if "REPLYLINE_" in word}
    assert named
    for variable in named:
        group, name = variable.removeprefix("REPLYLINE_").lower().split("__")
        assert hasattr(getattr(settings, group), name)


def test_the_table_shows_every_row_and_brackets_as_they_are() -> None:
    """`replyline[onnx]` is a command, not a style."""
    out = StringIO()
    rows = judge(dataclasses.replace(COMPLETE, missing_modules={"onnx": ("gguf",)}))
    print_table(rows, Console(file=out, width=200))
    text = out.getvalue()
    assert "pip install 'replyline[onnx]'" in text
    assert all(row.name in text for row in rows)


def test_an_address_without_a_port_does_not_answer_and_does_not_crash() -> None:
    """A setting that is half written is shown as it is."""
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "nowhere"}, "redis": {"url": "redis:///0"}})
    facts = gather(settings)
    assert facts.kafka == {"nowhere": False}
    assert list(facts.redis.values()) == [False]
    assert facts.redis_memory is None
