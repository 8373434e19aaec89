"""Versions that change during the load, by the operators' commands and a rollout controller.

The engine is scripted, and each of its versions writes different answers.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.lifecycle.versions.writer import RegistryWriter
from ops.stack.processes import Child, ServiceError
from shared.settings import PREFIX
from shared.settings.kafka import KafkaSettings
from shared.versions.registry import Added, Checked
from shared.versions.version import Version
from shared.wire.lanes import Lane

LANES: Final[tuple[Lane, ...]] = ("canary", "control")
"""One worker each, in addition to the champion's."""
_AUTHOR: Final = "chaos"
_COMMAND_S: Final = 60.0
_BEGUN_S: Final = 1.0
_SHARE: Final = "30"


def _version(name: str) -> Version:
    return Version(name=name, model="fake", model_revision=name, manifest_sha256=name)


@dataclass(slots=True, kw_only=True)
class Versions:
    """`env` is what gateways and workers are started with, without its prefix. The champion is the first of the two
    versions until a switch."""

    settings: KafkaSettings
    env: Mapping[str, str]
    logs: Path
    both: list[Version] = field(default_factory=lambda: [_version("chaos-a"), _version("chaos-b")])
    _controller: Child | None = None

    async def start(self) -> None:
        """Fill the registry; there are no workers yet. Raises `BrokerUnavailable`, `ServiceError`."""
        now = round(time.time() * 1_000)
        async with RegistryWriter.opened(self.settings, _AUTHOR) as writer:
            for version in self.both:
                await writer.write(Added(version=version, author=_AUTHOR))
                await writer.write(Checked(revision=version.id, author=_AUTHOR, unix_ms=now))
        await self._type("versions", "use", self.both[0].id)
        self._launch()

    async def switch(self) -> str:
        """Change the champion and return the command's output. Raises `ServiceError`."""
        self.both.reverse()
        return await self._type("versions", "use", self.both[0].id)

    async def rollback(self, down_s: float) -> None:
        """Give a canary its share for this long, then remove it."""
        await self._begin()
        await asyncio.sleep(down_s)
        await self._type("rollout", "stop")

    async def kill_controller(self, down_s: float) -> None:
        """Let it die in the middle of a rollout; the next one leads it on."""
        await self._begin()
        await asyncio.sleep(_BEGUN_S)
        self.stop()
        await asyncio.sleep(down_s)
        self._launch()
        await asyncio.sleep(_BEGUN_S)
        await self._type("rollout", "stop")

    async def _begin(self) -> None:
        """Start a rollout; while another fault holds a worker of its lanes down, it is refused."""
        async with asyncio.timeout(_COMMAND_S):
            while True:
                with contextlib.suppress(ServiceError):
                    await self._type("rollout", "start", self.both[1].id, "--steps", _SHARE)
                    return
                await asyncio.sleep(_BEGUN_S)

    def stop(self) -> None:
        """Kill the controller."""
        if self._controller is not None:
            self._controller.kill()

    def _launch(self) -> None:
        self._controller = Child.start(
            self._words("rollout", "run", "--metrics-port", "0"), env=self._env(), log=self.logs / "controller.log"
        )

    async def _type(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._words(*words), env=self._env(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(_COMMAND_S):
            said, _ = await process.communicate()
        if process.returncode:
            raise ServiceError(f"replyline {' '.join(words)}: status {process.returncode}: {said.decode()[-500:]}")
        return said.decode().splitlines()[-1]

    @staticmethod
    def _words(*words: str) -> list[str]:
        return [sys.executable, "-m", "ops.cli", *words]

    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"} | {PREFIX + name: value for name, value in self.env.items()}
