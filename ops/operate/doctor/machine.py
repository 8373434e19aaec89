"""Determine what this machine is, and which programs and packages it has. For `replyline doctor`."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.stack.embedded import find_librdkafka, find_redis_server
from ops.stack.kafka_broker import find_java
from shared.process.hardware import usable_cores

_MODULES: Final = {
    "onnx": ("gguf", "onnx", "onnxruntime"),
    "dev": ("hypothesis", "playwright", "pytest", "ruff"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Facts about the machine. `platform` is Python's name of the system; `missing_modules` are Python modules by the
    extra that installs them."""

    platform: str
    python: tuple[int, int, int]
    cores: int
    memory_gb: float
    disk_gb: float
    missing_modules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    librdkafka: str | None = None
    redis_server: str | None = None
    java: int | None = None
    maven: str | None = None
    chromium: str | None = None


def machine_facts(model_dir: Path) -> MachineFacts:
    """Inspect this machine. The disk is the one on which a model would be stored."""
    librdkafka = find_librdkafka()
    return MachineFacts(
        platform=sys.platform,
        python=sys.version_info[:3],
        cores=usable_cores(),
        memory_gb=_memory_gb(),
        disk_gb=shutil.disk_usage(_existing(model_dir)).free / 1e9,
        missing_modules={
            extra: [name for name in names if importlib.util.find_spec(name) is None]
            for extra, names in _MODULES.items()
        },
        librdkafka=None if librdkafka is None else librdkafka.name,
        redis_server=find_redis_server(),
        java=_java_version(),
        maven=shutil.which("mvn"),
        chromium=find_chromium(),
    )


def find_chromium() -> str | None:
    """Return Chromium or Chrome from the system's packages."""
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


def _memory_gb() -> float:
    """Return the memory of the machine, or of the container if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total / 1e9


def _existing(path: Path) -> Path:
    """Return the nearest existing folder."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())
