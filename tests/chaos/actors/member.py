"""A gateway or a worker that is killed and started again, always the same."""

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.stack.processes import Child, ServiceError
from ops.stack.readiness import wait_ready
from shared.settings import PREFIX
from tests.chaos.faults.hangs import SEGFAULT, taken
from tests.support.system import get

STOP_S: Final = 15.0
_POLL_S: Final = 0.05
# The settings of every gateway and worker.
ENV: Final = {
    "WORKER__ENGINE": "fake",
    "ANSWERS__GUARD": "false",
    "AUTH__MODE": "anonymous",
    "GATEWAY__MESSAGES_PER_MINUTE": "1000000",
    "GATEWAY__MAX_INFLIGHT_PER_CONNECTION": "32",
    "QUOTAS__ADDRESS_PER_MINUTE": "0",
    "KAFKA__SESSION_TIMEOUT_MS": "2000",
    "WORKER__SLOTS": "16",
    "WORKER__FAKE_DECODE_MS_PER_STEP": "5",
    "REDIS__TIMEOUT_MS": "200",
    # For clients that send no deadline. Clients here send one; alerts use this.
    "PROMISE__FIRST_TOKEN_MS": "500",
}


@dataclass(slots=True, kw_only=True)
class Member:
    """A gateway or a worker: started with the same settings, on the same ports, each time. `port` is for customers,
    `metrics_port` for operators; a worker has one. `clock`: the file with the error of its wall clock, if the clock can
    be wrong (`tests/chaos/faults/clocks.py`). `hang`: the file at which its engine hangs or crashes, if it can
    (`tests/chaos/faults/hangs.py`)."""

    name: str
    module: str
    port: int
    metrics_port: int
    env: dict[str, str]
    log: Path
    clock: Path | None = None
    hang: Path | None = None
    child: Child | None = None

    def launch(self) -> None:
        env = {PREFIX + name: value for name, value in self.env.items()}
        clock = () if self.clock is None else ("tests.chaos.faults.clocks", self.clock)
        hang = () if self.hang is None else ("tests.chaos.faults.hangs", self.hang)
        self.child = Child.start([sys.executable, "-m", *clock, *hang, self.module], env=env, log=self.log)

    async def ready(self) -> None:
        """Wait until it is ready. Raises `ServiceError` with the end of the process's output."""
        assert self.child is not None, "launch comes first"
        try:
            await wait_ready(self.child, f"http://127.0.0.1:{self.metrics_port}/ready", self.name)
        except ServiceError as error:
            said = self.log.read_text(errors="replace").splitlines()[-5:]
            raise ServiceError(f"{error}: {' | '.join(said)}") from None

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()

    async def leave(self) -> bool:
        """Send SIGTERM, wait for the end, and return whether it ended by itself."""
        assert self.child is not None, "launch comes first"
        self.child.signal(signal.SIGTERM)
        return await self.gone(STOP_S)

    async def drained(self) -> bool:
        """Ask it to drain; return whether it has in time."""
        for _ in range(int(STOP_S / _POLL_S)):
            page = await asyncio.to_thread(get, f"http://127.0.0.1:{self.metrics_port}/drain")
            if page is not None and b'"drained"' in page.body:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def hangs(self, limit_s: float, *, crashes: bool = False) -> bool:
        """Let its engine hang, or crash the process, in its next step. Return whether a step began within that time; a
        later step does not hang."""
        assert self.hang is not None, "its engine can hang"
        file = self.hang.with_suffix(SEGFAULT) if crashes else self.hang
        file.touch()
        for _ in range(int(limit_s / _POLL_S)):
            if not file.exists():
                return True
            await asyncio.sleep(_POLL_S)
        return not taken(file)

    async def gone(self, limit_s: float) -> bool:
        """Return whether it has ended by itself; it is killed after that time."""
        assert self.child is not None, "launch comes first"
        for _ in range(int(limit_s / _POLL_S)):
            if not self.child.running:
                return True
            await asyncio.sleep(_POLL_S)
        self.child.kill()
        return False
