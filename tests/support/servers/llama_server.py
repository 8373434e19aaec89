"""A real llama-server on this machine, with the demo's model: the peer that `upstream` is held to."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ops.model.prepare import default_source
from ops.stack.own_pages import open_page
from ops.stack.processes import Child, ServiceError, free_port

PROGRAM: Final = Path(__file__).parents[3] / ".cache/llama-server/llama-server"
Q4_0: Final = PROGRAM.with_name("q4_0.gguf")
"""The demo's model, without an adapter, in llama.cpp's fastest form on a CPU."""
_START_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class LlamaServer:
    """`slots` requests at a time, of `length` tokens each. Use as a context manager; it is killed, as by `kill -9`."""

    program: Path = PROGRAM
    slots: int = 4
    length: int = 1_024
    threads: int = 1
    model: Path | None = None
    port: int = 0
    child: Child | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Start it, on the port that it had before, and wait for its model. Raises `ServiceError`."""
        if not self.program.is_file():
            raise ServiceError(f"{self.program} is missing. Type: ops/setup/llama-server")
        self.port = self.port or free_port()
        room = ("-np", str(self.slots), "-c", str(self.slots * self.length), *self._threads())
        model = ("-m", str(self.model or default_source()), "--alias", "smollm2")
        self.child = Child.start([self.program.resolve(), *model, *room, "--port", str(self.port)])
        async with asyncio.timeout(_START_S):
            while not await asyncio.to_thread(self._is_ready):
                if not self.child.running:
                    raise ServiceError(f"{self.program} ended with status {self.child.process.returncode}")
                await asyncio.sleep(0.05)

    def _threads(self) -> tuple[str, ...]:
        return ("-t", str(self.threads), "-tb", str(self.threads))

    def _is_ready(self) -> bool:
        try:
            with open_page(f"{self.url.removesuffix('/v1')}/health", timeout_s=1) as page:
                return page.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
