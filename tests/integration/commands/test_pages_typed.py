"""The pages' blocks are typed on the demo, with its own Kafka, Redis and model (tests/support/typed_pages.py)."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ops.stack.processes import free_port
from tests.support.shells import ROOT, Shell, shell
from tests.support.typed_pages import ALL, DEMO, RUNBOOK_COMMANDS, TYPED, Block

SHOP = """[{"id": "hours", "topic": "shop", "en": {"question": "When?", "answer": "At 9:00.", "alternatives": []}}]"""
NO_DEMO = ("make demo", "AUTH__SECRET_FILE", "AUTH__MODE", "openssl", "faq sign")
"""In blocks that start a demo, or that ask the one that checks tokens."""
HEAVY = ("simulate", "plan", "profile", "model prepare", "versions add")
PLAIN = [
    pytest.param(block, id=block.name, marks=[pytest.mark.long] if any(word in block.text for word in HEAVY) else [])
    for block in ALL
    if TYPED.get(block.key or "") == DEMO and not any(word in block.text for word in NO_DEMO)
]
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Terminal:
    """A folder like the checkout's root, in which commands may write, and the demo's port."""

    folder: Path
    port: int

    @classmethod
    def at(cls, folder: Path) -> "Terminal":
        """Create the folder. `make` there runs the recipe of `make demo` without its setup, which would follow the
        links.
        """
        port = free_port()
        for path in ROOT.iterdir():
            if path.name not in {".run", ".git", "Makefile"}:
                (folder / path.name).symlink_to(path)
        (folder / ".run").mkdir()
        (folder / ".run" / "demo.env").symlink_to(folder / ".run" / f"demo-{port}.env")
        (folder / "bin").mkdir()
        (folder / "bin" / "make").write_text(f"#!/bin/sh\nREPLYLINE_GATEWAY__PORT={port} exec replyline up\n")
        (folder / "bin" / "make").chmod(0o755)
        (folder / "mine.json").write_text(SHOP)
        return cls(folder, port)

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REPLYLINE_")}
        path = f"{self.folder / 'bin'}:{ROOT / '.venv' / 'bin'}:{kept['PATH']}"
        versions = str(self.folder / "versions")  # a copy of each, which no process may write
        return kept | {"PATH": path, "REPLYLINE_MODEL__VERSIONS_DIR": versions, "PORT": str(self.port)}

    async def demo(self, bash: Shell, block: str) -> None:
        """Type a block that ends with the start of a demo, and wait until the demo is ready."""
        bash.type(block)
        await bash.shows('"event": "ready"')

    async def type(self, block: str) -> str:
        """Type a block to its end; return the terminal's output. Fails if a command fails."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-e", "-o", "pipefail", "-c", block),
            cwd=self.folder,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        shown, _ = await process.communicate()
        assert process.returncode == 0, shown.decode()
        assert b"Traceback" not in shown
        return shown.decode()


def block_of(page: str, begins: str) -> Block:
    [block] = [block for block in ALL if block.page == page and block.text.startswith(begins)]
    return block


@pytest_asyncio.fixture(scope="module")
async def reader(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Terminal]:
    """The README's quick start, typed in the checkout; the next commands are typed in another terminal."""
    terminal = Terminal.at(tmp_path_factory.mktemp("checkout"))
    start, _, ask = block_of("README.md", "make demo").text.partition("\n")
    env = terminal.env | {"PATH": os.environ["PATH"]}
    async with shell(terminal.folder / "demo.log", env, limit_s=200) as demo:
        await terminal.demo(demo, f"{start}\n")
        (terminal.folder / ".run" / "demo.env").unlink()
        (terminal.folder / ".run" / "demo.env").symlink_to(ROOT / ".run" / f"demo-{terminal.port}.env")
        assert "5 working days" in await terminal.type(f". .run/demo.env\n{ask}")
        yield terminal


@pytest.mark.parametrize("block", PLAIN)
async def test_a_block_can_be_typed_while_the_demo_runs(reader: Terminal, block: Block) -> None:
    await reader.type(f". .run/demo.env\n{block.lines}")


@pytest.mark.parametrize("command", RUNBOOK_COMMANDS)
async def test_a_command_in_a_runbooks_sentence_can_be_typed_while_the_demo_runs(
    reader: Terminal, command: str
) -> None:
    await reader.type(f". .run/demo.env\n{command}")


async def test_a_demo_that_checks_tokens_is_the_centre_of_an_edge(tmp_path: Path) -> None:
    """security.md, then edge.md."""
    terminal = Terminal.at(tmp_path)
    secret, started = block_of("docs/security.md", "openssl").text.splitlines()
    await terminal.type(secret)
    shown = await terminal.type(block_of("docs/edge.md", "mkdir faq-keys").text)
    assert "180 entries, signed by key" in shown
    first, centre, beside = [block.text for block in ALL if block.page == "docs/edge.md"][-3:]
    assert "--token-file token --trusted-keys faq-keys" in first
    assert centre.endswith(started.removeprefix("REPLYLINE_AUTH__SECRET_FILE=secret ") + "\n")
    port = str(free_port())
    async with (
        shell(tmp_path / "centre.log", terminal.env, cwd=tmp_path) as demo,
        shell(tmp_path / "edge.log", terminal.env, cwd=tmp_path) as edge,
    ):
        await terminal.demo(demo, centre)
        answer = await terminal.type(block_of("docs/security.md", ". .run/demo.env\nexport REPLYLINE_AUTH").text)
        assert "My orders" in answer
        await terminal.demo(edge, beside.replace("8085", port))
        asked = await terminal.type(f'replyline ask "How long do refunds take?" --url ws://127.0.0.1:{port}/ws')
        assert "5 working days" in asked
