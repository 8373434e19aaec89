"""Two gateways and three workers on a real Kafka and Redis, a store of versions, and the commands that move them."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from ops.stack.processes import Child
from shared.kafka import LogReader, Producer
from shared.versions.log import VersionsLog, outgoing
from shared.versions.registry import Checked, Entry, Registry
from shared.versions.state import Move
from shared.wire.lanes import Lane
from tests.proofs.lifecycle.models import HISTORY_TURNS, MAX_LENGTH, Speaker
from tests.support.system import CURSOR_SECRET, Service, System, eventually

SETTINGS: Final[dict[str, Any]] = {
    "worker__engine": "onnx",
    "worker__threads": 1,
    "worker__slots": 8,
    "worker__max_length": MAX_LENGTH,
    "worker__history_turns": HISTORY_TURNS,
    "worker__grounding_entries": 0,
    "worker__system_prompt": "",
    "worker__cache_dir": lambda folder: folder / "cache",
    "model__versions_dir": lambda folder: folder / "versions",
    "kv__precision": "exact",  # answers are compared token for token
    "kafka__session_timeout_ms": 6_000,
    "gateway__cursor_secret_file": CURSOR_SECRET,
    "gateway__messages_per_minute": 1_000_000,
    "promise__first_token_ms": 8_000,
    "promise__deadline_ms": 20_000,
}
LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    text: str

    def __str__(self) -> str:
        return f"status {self.status}: {self.text[-1_000:]}"


@dataclass(slots=True, kw_only=True)
class Setting:
    """`speakers` are the versions that were added, by id: what each says by itself."""

    system: System
    speakers: dict[str, Speaker] = field(default_factory=dict)
    gateways: list[Service] = field(default_factory=list)
    workers: list[Service] = field(default_factory=list)
    controllers: list[Child] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.system.folder / "versions"

    async def command(self, *words: str) -> Said:
        """Type `replyline …` with the system's settings."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops.cli", *words),
            env=self.system.environment()
            | {"PATH": "/usr/bin:/bin", "HOME": str(self.system.folder), "COLUMNS": "200"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(LIMIT_S):
            printed, _ = await process.communicate()
        assert process.returncode is not None
        return Said(process.returncode, printed.decode())

    async def done(self, *words: str) -> str:
        """Type it; fail with what it says unless it succeeds."""
        said = await self.command(*words)
        assert said.status == 0, f"replyline {' '.join(words)}: {said}"
        return said.text

    async def add(self, folder: Path, name: str, *, key: Path | None = None) -> str:
        """Put a version into the store and the registry; return its id. Its check is written here: what these models
        say is no right answer to anything."""
        signed = () if key is None else ("--key", str(key))
        text = await self.done("versions", "add", str(folder), "--name", name, "--author", "lifecycle", *signed)
        revision = text.split(":", 1)[0].split()[-1]
        await self.write([Checked(revision=revision, author="lifecycle", unix_ms=round(time.time() * 1_000))])
        self.speakers[revision] = Speaker(folder)
        return revision

    async def start(self, *lanes: Lane) -> None:
        """Start the two gateways, and a worker for each of these lanes."""
        self.gateways = [self.system.gateway(gateway__reply_partition=number) for number in range(2)]
        self.workers = [self.worker(lane) for lane in lanes]
        await asyncio.gather(*(service.ready() for service in [*self.gateways, *self.workers]))
        for worker in self.workers:
            await eventually(partial(worker.metric, "replyline_rebalances_total"))

    def worker(self, lane: Lane, **settings: Any) -> Service:
        named = {} if lane == "champion" else {"worker__lane": lane}
        return self.system.worker(**named | settings)

    def controller(self) -> Child:
        """Start a rollout controller. It ends with the setting, unless it was ended before."""
        log = self.system.folder / f"controller-{next(self.system.numbers)}.log"
        words = ("rollout", "run", "--metrics-port", "0")
        command = [sys.executable, "-m", "ops.cli", *words]
        self.controllers.append(Child.start(command, env=self.system.environment(), log=log))
        return self.controllers[-1]

    def stop_controllers(self) -> None:
        for controller in self.controllers:
            controller.stop()

    async def registry(self) -> Registry:
        """Return the registry, as its log has it now."""
        log = self._log()
        try:
            await log.start()
            return log.registry
        finally:
            await log.stop()

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write records as they are, past the commands' checks."""
        producer = Producer(self.system.kafka_settings, client_id="lifecycle")
        await producer.start()
        try:
            for entry in entries:
                await producer.publish(outgoing(self.system.topic("chat.versions"), entry))
        finally:
            await producer.stop()

    async def move(self, **changed: Any) -> Move:
        """Write the next state, with these changes, like a client with access to the log."""
        state, now = (await self.registry()).state, round(time.time() * 1_000)
        after = structs.replace(state, epoch=state.epoch + 1, effective_unix_ms=now, **changed)
        move = Move(state=after, author="lifecycle", reason="by hand", unix_ms=now)
        await self.write([move])
        return move

    def _log(self) -> VersionsLog:
        settings = self.system.kafka_settings
        topic = settings.topics.versions
        return VersionsLog(LogReader(settings, client_id="lifecycle", topic=topic, partition=0))
