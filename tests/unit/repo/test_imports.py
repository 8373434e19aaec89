"""Decisions are pure: what decides imports nothing that waits, reads a clock, or speaks to another process."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
MODULES = next(contract["source_modules"] for contract in CONTRACTS if contract["name"].startswith("what decides"))


def files_of(module: str) -> list[Path]:
    """A module's file, or those of a package."""
    path = ROOT / module.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


PURE = [file for module in MODULES for file in files_of(module)]
FORBIDDEN = {"aiokafka", "asyncio", "random", "redis", "secrets", "socket", "threading", "time", "torch", "websockets"}
SHELLS = {
    "shared.process.clock",
    "shared.conversation.history",
    "shared.kafka",
    "shared.telemetry.logs",
    "shared.telemetry.metrics",
}


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_decides_imports_nothing_that_waits(file: Path) -> None:
    names = imports_of(file)
    assert not {name.partition(".")[0] for name in names} & FORBIDDEN
    assert not names & SHELLS
