"""Two operators start a rollout of the same version at the same moment: one begins, and is not ended by the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ops.lifecycle.rollout import commands
from ops.lifecycle.rollout.commands import StartOptions
from ops.lifecycle.rollout.records import newest
from shared.errors import ModelError
from shared.settings import Settings
from shared.versions.registry import Added, Checked, Entry, Registry
from shared.versions.state import Move, State
from tests.unit.ops.lifecycle.rollout.test_interleavings import NEW, OLD


@dataclass
class Log:
    """The topic, and one operator's view of it, which is read again at `catch_up` and after each write."""

    topic: list[Entry]
    registry: Registry = field(default_factory=Registry)
    num_read: int = 0

    async def catch_up(self) -> None:
        for entry in self.topic[self.num_read :]:
            self.registry.apply(entry)
        self.num_read = len(self.topic)


@dataclass
class Writer:
    log: Log
    late: asyncio.Event | None = None
    wrote: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def registry(self) -> Registry:
        return self.log.registry

    async def write(self, entry: Entry) -> None:
        if self.late is not None:
            await self.late.wait()
        self.log.topic.append(entry)
        await self.log.catch_up()
        if isinstance(entry, Move):
            self.wrote.set()


@pytest.mark.parametrize("is_caught_up", [False, True], ids=["it writes a moment later", "it reads a moment later"])
async def test_of_two_operators_that_start_the_same_version_one_begins_and_is_led_on(
    monkeypatch: pytest.MonkeyPatch, is_caught_up: bool
) -> None:
    topic: list[Entry] = [Added(version=each, author="ann") for each in (OLD, NEW)]
    topic += [Checked(revision=each.id, author="ann", unix_ms=0) for each in (OLD, NEW)]
    topic.append(Move(state=State(epoch=1, aliases={"champion": OLD.id}), author="ann", reason="use", unix_ms=0))
    first = Writer(Log(topic))
    second = Writer(Log(topic), None if is_caught_up else first.wrote)
    writers, both = [first, second], asyncio.Barrier(2)

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Writer]:
        writer = writers.pop(0)
        await writer.log.catch_up()
        await both.wait()
        yield writer

    async def ready(writer: Writer, *_: Any) -> dict[str, Any]:
        if writer is second and is_caught_up:
            await first.wrote.wait()
        return {}

    async def end(_: Settings) -> int:
        return 0

    for name, fake in (("ready", ready), ("_end", end), ("lacks_room", lambda *_: None), ("Surroundings", _Calm)):
        monkeypatch.setattr(commands, name, fake)
    monkeypatch.setattr(commands.RegistryWriter, "opened", opened)
    starts = [commands._start(Settings(), StartOptions(version=NEW.name), (0.1,)) for _ in range(2)]
    told, refused = await asyncio.gather(*starts, return_exceptions=True)
    assert isinstance(told, str)
    assert isinstance(refused, ModelError)
    registry = Registry()
    for entry in topic:
        registry.apply(entry)
    rollout = newest(registry)
    assert rollout is not None
    assert rollout.ended is None
    assert rollout.rules(registry.state)


class _Calm:
    def __init__(self, _: object) -> None:
        pass

    def health(self, *_: object) -> None:
        return None
