"""`replyline doctor`: what this machine has and lacks, each with the command to type.

`gather` looks (processes, files, sockets), `judge` decides (`ops/operate/doctor/rows.py`), `run_doctor` prints and
gives the exit status."""

import asyncio
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from redis.exceptions import RedisError
from rich.console import Console
from rich.table import Table

from ops.operate.doctor.engine_facts import engine_facts
from ops.operate.doctor.kv_memory import kv_facts, redis_memory
from ops.operate.doctor.rows import Facts, Purpose, Row, judge, nothing_is_missing, verdict
from ops.stack.embedded import find_librdkafka, find_redis_server
from ops.stack.kafka_broker import find_java
from ops.stack.port_use import port_use
from shared.errors import BrokerUnavailable
from shared.kafka import Producer, broker_addresses, why_unreachable
from shared.process.host_port import host_port
from shared.redis.client import addresses_of, blocking_redis, cause_of
from shared.settings import CPU_ENGINES, Settings
from shared.settings.redis import RedisAddress
from shared.wire.topic_layout import TopicCopies
from shared.wire.topics import BUCKETS

CONNECT_TIMEOUT_S: Final = 1.0
_COPIES_S: Final = 5.0
_STYLES: Final = {"ok": "green", "warn": "yellow", "missing": "bold red"}
_MODULES: Final = {
    "onnx": ("gguf", "onnx", "onnxruntime"),
    "dev": ("hypothesis", "playwright", "pytest", "ruff"),
}


def purpose_of(settings: Settings) -> Purpose:
    """Production where somebody has said where its Kafka or its Redis is."""
    named = {*settings.kafka.model_fields_set, *settings.redis.model_fields_set, *settings.kv_redis.model_fields_set}
    return "production" if named & {"bootstrap_servers", "url"} else "demo"


def gather(settings: Settings) -> Facts:
    """Look at this machine: a few seconds at most, nothing is changed."""
    kafka = {host_port(*address): _answers(address) for address in broker_addresses(settings.kafka)}
    servers = {_redis_name(each): each for each in (settings.redis, settings.redis_of_kv)}
    redis = {name: any(map(_answers, _redis_addresses(each))) for name, each in servers.items()}
    librdkafka, engine = find_librdkafka(), engine_facts(settings)
    gateway = settings.gateway
    return Facts(
        platform=sys.platform,
        python=sys.version_info[:3],
        cores=_cores(),
        memory_gb=_memory_gb(),
        disk_gb=shutil.disk_usage(_existing(settings.model.dir)).free / 1e9,
        port=gateway.port,
        port_use=port_use(gateway.host, gateway.port),
        model_dir=str(settings.model.dir),
        model_prepared=(settings.model.dir / "manifest.json").is_file(),
        uses_cpu_engine=not {*CPU_ENGINES}.isdisjoint({settings.worker.engine, settings.worker.fallback_engine}),
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
        redis=redis,
        redis_refusals=[
            why for name, each in servers.items() if redis[name] and (why := redis_refusal(each)) is not None
        ],
        kv=kv_facts(settings.model.dir, settings.kv, native=engine.is_native) if settings.kv.enabled else None,
        history_memory=redis_memory(settings.redis, timeout_s=CONNECT_TIMEOUT_S),
        kv_memory=redis_memory(settings.redis_of_kv, timeout_s=CONNECT_TIMEOUT_S),
        has_kv_redis=settings.redis_of_kv is not settings.redis,
        engine=engine,
        copies=asyncio.run(_copies(settings)) if any(kafka.values()) else (),
        told_replicas=settings.kafka.replication_factor,
        has_origins=bool(gateway.allowed_origins),
        has_cursor_secret=gateway.cursor_secret_file is not None,
    )


async def _copies(settings: Settings) -> list[TopicCopies]:
    """Return the copies of the topics that hold customers' words; none where Kafka does not tell."""
    names = settings.kafka.topics
    producer, found = Producer(settings.kafka, client_id="replyline-doctor"), list[TopicCopies]()
    try:
        async with asyncio.timeout(_COPIES_S):
            await producer.start()
            for name in (*map(names.requests, BUCKETS), names.replies):
                with suppress(BrokerUnavailable):
                    found.append(await producer.copies(name, whole=True))
    except TimeoutError:
        pass
    finally:
        await producer.stop()
    return found


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
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_gb() -> float:
    """Return the memory of the machine, or of the container where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total / 1e9


def _existing(path: Path) -> Path:
    """Return the nearest folder that is there."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())


def _redis_addresses(settings: RedisAddress) -> list[tuple[str, int] | str]:
    """Return the addresses of the server, or those of a cluster's node or of the sentinels that the URL names; of a
    unix socket its path."""
    return [address if address[0] else urlsplit(settings.url).path for address in addresses_of(settings)]


def _redis_name(settings: RedisAddress) -> str:
    return ",".join(
        address if isinstance(address, str) else host_port(*address) for address in _redis_addresses(settings)
    )


def _answers(address: tuple[str, int] | str) -> bool:
    """Return whether something accepts connections at a host's port or at a unix socket's path."""
    try:
        if isinstance(address, str):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(CONNECT_TIMEOUT_S)
                connection.connect(address)
                return True
        with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def redis_refusal(settings: RedisAddress) -> str | None:
    """Why it does not let us in as the settings say; None where it does."""
    client = blocking_redis(settings, timeout_ms=CONNECT_TIMEOUT_S * 1_000)
    try:
        client.ping()
    except (RedisError, OSError, ValueError) as error:
        return cause_of(error)
    finally:
        client.close()
    return None


def print_table(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "status", "found", "remedy"):
        table.add_column(title, overflow="fold")
    for row in rows:
        status = f"[{_STYLES[row.status]}]{row.status}[/]"
        table.add_row(row.name, status, row.detail.replace("[", "\\["), row.remedy.replace("[", "\\["))
    console.print(table)


def run_doctor(settings: Settings, purpose: Purpose | None = None, console: Console | None = None) -> int:
    """Print the table. 0 when nothing is missing of what is judged, else 1. Without a purpose the settings say it."""
    console = console or Console()
    purpose = purpose or purpose_of(settings)
    facts = gather(settings)
    rows = judge(facts, purpose)
    print_table(rows, console)
    console.print(verdict(rows, facts, purpose), soft_wrap=True)
    return 0 if nothing_is_missing(rows) else 1
