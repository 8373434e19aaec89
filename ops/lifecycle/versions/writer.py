"""Read the registry, and write to it as one author."""

import getpass
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ops.command_line import command_typed
from ops.lifecycle.versions.moves import ROLLOUT_AUTHOR, beside, still_waits
from shared.errors import ReplylineError, SettingsError
from shared.kafka import Producer, scan
from shared.process.clock import wire_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.versions.log import VersionsLog, apply_record
from shared.versions.registry import Entry, Registry
from shared.versions.state import Move, State


class MoveLost(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """Another author made the move of that epoch first."""

    code = "move_lost"


async def read_registry(kafka: KafkaSettings) -> Registry:
    """Return the registry as it stands. Raises `BrokerUnavailable`."""
    registry = Registry()
    async for kept in scan(kafka, kafka.topics.versions):
        apply_record(registry, kept.record)
    return registry


def warn_unreadable(registry: Registry) -> None:
    """Print that what a command shows is not the newest state, if so, and the remedy."""
    if registry.blocked is not None:
        sys.stderr.write(f"replyline: {registry.blocked}; shown is the state before it\n")


@dataclass(frozen=True, slots=True)
class RegistryWriter:
    """`registry` is what was read by the last write or `catch_up`."""

    author: str
    topic: str
    log: VersionsLog
    producer: Producer

    @classmethod
    @asynccontextmanager
    async def opened(cls, kafka: KafkaSettings, author: str | None) -> "AsyncIterator[RegistryWriter]":
        """Raise `SettingsError` for an author's name that only rollouts use, `BrokerUnavailable` without Kafka or the
        topic."""
        author = author or getpass.getuser()
        if author.startswith(ROLLOUT_AUTHOR):
            raise SettingsError(f"--author {author}: only a rollout's own moves are signed so; give your name")
        await read_registry(kafka)  # what follows would wait for the broker as long as it takes
        log, producer = (
            VersionsLog.of(kafka, client_id="replyline-versions", keeps_notes=True),
            Producer(kafka, client_id="replyline"),
        )
        try:
            await log.start()
            await producer.start()
            yield cls(author, kafka.topics.versions, log, producer)
        finally:
            await producer.stop()
            await log.stop()

    @property
    def registry(self) -> Registry:
        return self.log.registry

    async def write(self, entry: Entry) -> None:
        """Write a record that is no move. Raises `BrokerUnavailable`."""
        await self.log.append(self.producer, self.topic, entry)

    async def move(
        self,
        state: State,
        reason: str,
        numbers: Mapping[str, float] | None = None,
        *,
        over: int = 0,
        waiting: Move | None = None,
    ) -> Move:
        """Move to a state; `waiting` keeps waiting for its time. Raises `MoveLost` if another author was first,
        `BrokerUnavailable`."""
        now = round(wire_unix_ms())
        state, interim = beside(waiting, state)
        move = Move(
            state=state,
            author=self.author,
            reason=reason + still_waits(waiting),
            unix_ms=now,
            numbers=dict(numbers or {}),
            interim=interim,
        )
        if not await self.log.append(self.producer, self.topic, move, over):
            raise MoveLost(self.lost_to(move.epoch))
        return move

    def lost_to(self, epoch: int) -> str:
        """Return who made the move of an epoch, and what to type."""
        winner = next((move for move in self.registry.moves if move.epoch == epoch), None)
        who = "another release" if winner is None else f"{winner.author} a moment before ({winner.reason})"
        return (
            f"epoch {epoch} was made by {who}; nothing was changed; "
            f"look at replyline versions log, then type it again: {command_typed()}"
        )
