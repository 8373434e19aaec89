"""A pause takes an epoch: a controller that decided without it loses, and its operator reads which steps were first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from ops.lifecycle.rollout.commands import _note, _take_epoch
from ops.lifecycle.versions.writer import MoveLost, RegistryWriter
from shared.errors import ModelError
from shared.settings import Settings
from shared.versions.registry import Noted, Registry
from shared.versions.state import Move, State
from tests.unit.ops.lifecycle.rollout.test_records import STARTED, decided, found, registry_of


@dataclass
class Writer:
    """A log in which a controller writes `before`, one record before each of the operator's."""

    registry: Registry
    before: list[Move] = field(default_factory=list)

    async def move(self, state: State, reason: str, *, waiting: Move | None) -> None:
        if self.before:
            self.registry.apply(self.before.pop(0))
        if not self.registry.apply(Move(state=state, author="ann", reason=reason, unix_ms=1)):
            raise MoveLost("another author was first")


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_pause_names_the_steps_that_were_written_a_moment_before(steps: int) -> None:
    registry = registry_of(STARTED)
    decided(registry)
    rollout = found(registry)
    state, author = registry.state, rollout.author
    later = [State(epoch=registry.epoch + 1 + n, aliases=state.aliases, rule=state.rule) for n in range(steps)]
    writer = Writer(registry, [Move(state=each, author=author, reason="up", unix_ms=1) for each in later])
    told = asyncio.run(_take_epoch(writer, rollout, "rollout paused by ann"))  # type: ignore[arg-type]
    assert told == "".join(f"; a moment before, epoch {each.epoch} was written: up" for each in later)
    assert (registry.moves[-1].author, registry.moves[-1].reason) == ("ann", "rollout paused by ann")
    assert registry.state.rule == state.rule
    decided_without_it = Move(state=registry.moves[-1].state, author=author, reason="up", unix_ms=2)
    assert not registry.apply(decided_without_it)


def test_a_rollout_that_has_not_begun_gets_no_epoch_before_its_first() -> None:
    """Else another author's move would be the first of its epoch, and it would never begin."""
    registry = registry_of(STARTED)
    writer = Writer(registry)
    assert asyncio.run(_take_epoch(writer, found(registry), "paused")) == ""  # type: ignore[arg-type]
    assert found(registry).moves == []


@pytest.mark.parametrize(
    ("held", "kind"), [(True, "paused"), (True, "approved"), (False, "resumed"), (False, "approved")]
)
def test_what_a_rollout_is_in_no_state_for_is_refused_as_every_other_move(
    monkeypatch: pytest.MonkeyPatch, held: bool, kind: str
) -> None:
    registry = registry_of(STARTED)
    decided(registry)
    if held:
        name = found(registry).id
        registry.apply(Noted(rollout=name, kind="paused", reason="paused by ann: by hand", unix_ms=2))

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Writer]:
        yield Writer(registry)

    monkeypatch.setattr(RegistryWriter, "opened", opened)
    noted = len(registry.notes)
    with pytest.raises(ModelError, match=f"cannot be {kind}: .*replyline rollout"):
        asyncio.run(_note(Settings(), kind, "by hand"))
    assert len(registry.notes) == noted
