"""`replyline doctor`: what this machine has and lacks, each with the command to type.

`gather` looks (processes, files, sockets), `judge` decides (pure), `run_doctor` prints and gives the exit status.
"""

import asyncio
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from ops.embedded import find_librdkafka, find_redis_server
from ops.engine_facts import EngineFacts, engine_facts
from ops.kafka_broker import find_java
from ops.kv_memory import SESSION_TOKENS, KvFacts, RedisMemory, kv_facts, redis_memory
from shared.kafka import why_unreachable
from shared.settings import Settings
from workers.engine.tensorrt_probe import Unusable

OLDEST_PYTHON: Final = (3, 11)
OLDEST_JAVA: Final = 17
MIN_MEMORY_GB: Final = 2.0
MIN_DISK_GB: Final = 1.5
MIN_CORES: Final = 2
CONNECT_TIMEOUT_S: Final = 1.0
_STYLES: Final = {"ok": "green", "warn": "yellow", "missing": "bold red"}
_MODULES: Final = {
    "onnx": ("gguf", "onnx", "onnxruntime"),
    "dev": ("hypothesis", "playwright", "pytest", "ruff"),
}


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"  # `make demo` works without it; something else does not
    MISSING = "missing"  # `make demo` does not work without it


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `remedy` is empty exactly when the status is ok."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found. Addresses map to whether something listens there."""

    python: tuple[int, int, int]
    cores: int
    memory_gb: float
    disk_gb: float
    port: int
    port_free: bool
    model_dir: str
    model_prepared: bool
    missing_modules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    librdkafka: str | None = None
    redis_server: str | None = None
    java: int | None = None
    maven: str | None = None
    chromium: str | None = None
    kafka: Mapping[str, bool] = field(default_factory=dict)
    kafka_refusal: str | None = None
    redis: Mapping[str, bool] = field(default_factory=dict)
    kv: KvFacts | None = None
    redis_memory: RedisMemory | None = None
    engine: EngineFacts | None = None


def judge(facts: Facts) -> list[Row]:
    """The rows, those that `make demo` needs first."""
    return [
        *_for_the_demo(facts),
        *_for_the_tests(facts),
        *_for_production(facts),
        *_for_engine(facts),
        *_for_kv(facts),
    ]


def demo_can_run(rows: Sequence[Row]) -> bool:
    return all(row.status is not Status.MISSING for row in rows)


def _row(name: str, found: bool, detail: str, remedy: str, *, otherwise: Status = Status.MISSING) -> Row:
    return Row(name, Status.OK, detail) if found else Row(name, otherwise, detail, remedy)


def _for_the_demo(facts: Facts) -> list[Row]:
    warn = Status.WARN
    oldest = ".".join(map(str, OLDEST_PYTHON))
    version = ".".join(map(str, facts.python))
    lacking = facts.missing_modules.get("onnx", ())
    prepared = "prepared" if facts.model_prepared else "not prepared (make demo does it)"
    taken = "free" if facts.port_free else "something listens there"
    return [
        _row("Python", facts.python >= OLDEST_PYTHON, version, f"install Python {oldest} or newer, then: make setup"),
        _row("CPU engine", not lacking, _listed(lacking), "pip install 'replyline[onnx]'"),
        _row("embedded Kafka", facts.librdkafka is not None, _where(facts.librdkafka), "pip install confluent-kafka"),
        _row(
            "embedded Redis",
            facts.redis_server is not None,
            _where(facts.redis_server),
            "pip install 'replyline[embedded]' (or: apt-get install redis-server)",
        ),
        _row(
            "model", facts.model_prepared, f"{facts.model_dir}: {prepared}", "replyline model prepare", otherwise=warn
        ),
        _row(f"port {facts.port}", facts.port_free, taken, f"make demo PORT={facts.port + 1}"),
        _row("cores", facts.cores >= MIN_CORES, str(facts.cores), f"{MIN_CORES} or more", otherwise=warn),
        _row(
            "memory",
            facts.memory_gb >= MIN_MEMORY_GB,
            f"{facts.memory_gb:.1f} GB",
            f"{MIN_MEMORY_GB:.0f} GB or more; REPLYLINE_WORKER__SLOTS=2 needs less",
            otherwise=warn,
        ),
        _row("disk", facts.disk_gb >= MIN_DISK_GB, f"{facts.disk_gb:.1f} GB free", f"free {MIN_DISK_GB} GB or more"),
    ]


def _for_the_tests(facts: Facts) -> list[Row]:
    warn = Status.WARN
    lacking = facts.missing_modules.get("dev", ())
    java = "not found" if facts.java is None else str(facts.java)
    chromium = facts.chromium is not None
    return [
        _row("test tools", not lacking, _listed(lacking), "make test", otherwise=warn),
        _row(
            "Java",
            (facts.java or 0) >= OLDEST_JAVA,
            java,
            f"apt-get install openjdk-{OLDEST_JAVA}-jre-headless",
            otherwise=warn,
        ),
        _row("Maven", facts.maven is not None, _where(facts.maven), "apt-get install maven", otherwise=warn),
        _row("Chromium", chromium, _where(facts.chromium), "apt-get install chromium", otherwise=warn),
    ]


def _for_production(facts: Facts) -> list[Row]:
    """Only warnings: the demo brings its own Kafka and Redis."""
    hint = "start it, or set {} (make demo brings its own)"
    kafka, redis = hint.format("REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"), hint.format("REPLYLINE_REDIS__URL")
    named = [*((f"Kafka {address}", up, kafka) for address, up in facts.kafka.items())]
    refusal = facts.kafka_refusal
    refused = [Row("Kafka's door", Status.WARN, refusal, "correct the settings that it names")] if refusal else []
    named += [(f"Redis {address}", up, redis) for address, up in facts.redis.items()]
    rows = [
        _row(name, up, "answers" if up else "does not answer", remedy, otherwise=Status.WARN)
        for name, up, remedy in named
    ]
    return [*rows, *refused]


def _for_engine(facts: Facts) -> list[Row]:
    """The GPU where one is asked for, and what the engine will take of its memory before it takes any."""
    rows: list[Row] = []
    if facts.engine is None:
        return rows
    gpu, plan = facts.engine.gpu, facts.engine.memory
    if isinstance(gpu, Unusable):
        remedy = "REPLYLINE_WORKER__ENGINE=onnx, or REPLYLINE_WORKER__FALLBACK_ENGINE=onnx"
        rows.append(Row(f"engine {facts.engine.name}", Status.WARN, gpu.reason, remedy))
    elif gpu is not None:
        rows.append(Row(f"engine {facts.engine.name}", Status.OK, f"{gpu.version} on {gpu.device}, {gpu.sm}"))
    if plan is not None:
        rows.append(_row("memory plan", plan.fits, plan.describe(), plan.remedy, otherwise=Status.WARN))
    return rows


def _for_kv(facts: Facts) -> list[Row]:
    """How many sessions' KV fits where; nothing where no model is prepared or none is kept."""
    if facts.kv is None:
        return []
    session_bytes = facts.kv.session_bytes[facts.kv.precision]
    by_precision = ", ".join(
        f"{name} {size / SESSION_TOKENS:,.0f}" for name, size in sorted(facts.kv.session_bytes.items())
    )
    needs = f"{facts.kv.precision}: {session_bytes / 1e6:.1f} MB for {SESSION_TOKENS:,} tokens"
    host_fits = f"{facts.kv.host_mib} MiB of host memory: {(facts.kv.host_mib << 20) // session_bytes} sessions"
    rows = [Row("session KV", Status.OK, f"{needs} (bytes a token: {by_precision}); {host_fits}")]
    if facts.redis_memory is not None:
        rows.append(_redis_room(facts.redis_memory, session_bytes))
    return rows


def _redis_room(memory: RedisMemory, session_bytes: int) -> Row:
    remedy = "redis-cli config set maxmemory-policy allkeys-lru"
    if memory.max_bytes == 0:
        room, remedy = "maxmemory: unlimited, as many sessions as the machine holds", f"set maxmemory, then: {remedy}"
    else:
        fits = memory.max_bytes // session_bytes
        room = f"maxmemory {memory.max_bytes / 2**20:,.0f} MiB: {fits:,} sessions of {SESSION_TOKENS:,} tokens"
    return _row(
        "Redis memory", memory.policy != "noeviction", f"{room}, {memory.policy}", remedy, otherwise=Status.WARN
    )


def _listed(lacking: Sequence[str]) -> str:
    return f"missing: {', '.join(lacking)}" if lacking else "installed"


def _where(found: str | None) -> str:
    return found or "not found"


def gather(settings: Settings) -> Facts:
    """Look at this machine: under two seconds, nothing is changed."""
    kafka = {address: _answers(address) for address in map(str.strip, settings.kafka.bootstrap_servers.split(","))}
    redis = urlsplit(settings.redis.url)
    redis_address = f"{redis.hostname}:{redis.port or 6379}" if redis.hostname else redis.path
    librdkafka = find_librdkafka()
    gateway = settings.gateway
    return Facts(
        python=sys.version_info[:3],
        cores=_cores(),
        memory_gb=_memory_gb(),
        disk_gb=shutil.disk_usage(_existing(settings.model.dir)).free / 1e9,
        port=gateway.port,
        port_free=can_listen(gateway.host, gateway.port),
        model_dir=str(settings.model.dir),
        model_prepared=(settings.model.dir / "manifest.json").is_file(),
        missing_modules={
            extra: [name for name in names if importlib.util.find_spec(name) is None]
            for extra, names in _MODULES.items()
        },
        librdkafka=None if librdkafka is None else librdkafka.name,
        redis_server=find_redis_server(),
        java=_java_version(),
        maven=shutil.which("mvn"),
        chromium=find_chromium(),
        kafka=kafka,
        kafka_refusal=asyncio.run(why_unreachable(settings.kafka)) if any(kafka.values()) else None,
        redis={redis_address: _answers(redis_address)},
        kv=kv_facts(settings.model.dir, settings.kv) if settings.kv.enabled else None,
        redis_memory=redis_memory(settings.redis, timeout_s=CONNECT_TIMEOUT_S),
        engine=engine_facts(settings),
    )


def find_chromium() -> str | None:
    """Chromium or Chrome from the system's packages."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path is not None), None)


def _java_version() -> int | None:
    java = find_java()
    if java is None:
        return None
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match.group(1)) if match else None


def _cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_gb() -> float:
    """Of the machine, or of the container where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total / 1e9


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())


def can_listen(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def _answers(address: str) -> bool:
    """Whether something accepts connections at host:port or at a unix socket's path."""
    try:
        if address.startswith("/"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CONNECT_TIMEOUT_S)
                connection.connect(address)
                return True
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def print_table(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "status", "found", "remedy"):
        table.add_column(title, overflow="fold")
    for row in rows:
        status = f"[{_STYLES[row.status]}]{row.status}[/]"
        table.add_row(row.name, status, row.detail.replace("[", "\\["), row.remedy.replace("[", "\\["))
    console.print(table)


def run_doctor(settings: Settings, console: Console | None = None) -> int:
    """Print the table. 0 when `make demo` has what it needs, else 1."""
    console = console or Console()
    rows = judge(gather(settings))
    print_table(rows, console)
    ready = demo_can_run(rows)
    console.print("make demo can run." if ready else "make demo cannot run yet: see the rows marked missing.")
    return 0 if ready else 1
