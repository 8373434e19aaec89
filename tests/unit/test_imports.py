"""Decisions are pure: what decides imports nothing that waits, reads a clock, or speaks to another process."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE = (
    "gateway/admission.py",
    "gateway/inflight.py",
    "gateway/outbox.py",
    "gateway/session.py",
    "shared/codec.py",
    "shared/deadline.py",
    "shared/errors.py",
    "shared/fallback.py",
    "shared/messages.py",
    "shared/requests.py",
    "shared/topics.py",
    "shared/tracing.py",
    "workers/answer.py",
    "workers/conversation.py",
    "workers/detokenizer.py",
    "workers/offsets.py",
    "workers/scheduler.py",
    "workers/sequence.py",
    "workers/slots.py",
)
FORBIDDEN = {"aiokafka", "asyncio", "random", "redis", "secrets", "socket", "threading", "time", "torch", "websockets"}
SHELLS = {"shared.clock", "shared.history", "shared.kafka", "shared.logs", "shared.metrics"}


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("file", PURE)
def test_what_decides_imports_nothing_that_waits(file: str) -> None:
    names = imports_of(ROOT / file)
    assert not {name.partition(".")[0] for name in names} & FORBIDDEN
    assert not names & SHELLS
