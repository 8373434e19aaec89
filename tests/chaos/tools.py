"""What this machine lacks for the faults."""

import shutil
from collections.abc import Callable, Mapping
from typing import Final

from ops.stack.embedded import find_redis_server
from ops.stack.kafka_broker import find_java, libs_dir
from tests.chaos.faults.menu import Tool

PROMETHEUS: Final = "prometheus"


def _has_kafka() -> bool:
    return find_java() is not None and (libs_dir().is_dir() or shutil.which("mvn") is not None)


_THERE: Final[Mapping[Tool, Callable[[], bool]]] = {
    Tool.JAVA: _has_kafka,
    Tool.REDIS: lambda: find_redis_server() is not None,
    Tool.ALERTS: lambda: shutil.which(PROMETHEUS) is not None,
}


def lacking(*tools: Tool) -> str | None:
    """In one line, with what to type; None: nothing."""
    missing = [tool.value for tool in tools if not _THERE[tool]()]
    return f"missing here. Type: {' && '.join(missing)}" if missing else None
