"""A bash into which a test types what a page prints."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.system import eventually

ROOT: Final = Path(__file__).parents[2]


@dataclass(slots=True)
class Shell:
    """A bash that ends with the first command that fails. `limit_s` bounds the wait for each text."""

    bash: asyncio.subprocess.Process
    screen: Path
    limit_s: float

    def type(self, block: str) -> None:
        assert self.bash.stdin is not None
        self.bash.stdin.write(block.encode())

    async def shows(self, text: str) -> None:
        def shown() -> bool:
            assert self.bash.returncode is None or text in self.screen.read_text(), self.screen.read_text()
            return text in self.screen.read_text()

        await eventually(shown, limit_s=self.limit_s)


@asynccontextmanager
async def shell(screen: Path, env: dict[str, str], *, cwd: Path = ROOT, limit_s: float = 60) -> AsyncIterator[Shell]:
    """Start a bash; end all that was started in it."""
    with screen.open("wb") as output:
        bash = await asyncio.create_subprocess_exec(
            *("bash", "-e", "-o", "pipefail", "-s"),
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Shell(bash, screen, limit_s)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await bash.wait()
