"""A question's way from its frame to Kafka stays short: figures of one traced question, each with a bound.

`docs/journey.md` names the modules in order. A bound that falls is lowered here; none is raised without a reason.
"""

import ast
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from gateway.serving.asking import Asking
from gateway.serving.gateway import Gateway
from gateway.serving.sending import Sending
from shared.conversation.places import Claimed
from shared.kafka import Outgoing
from shared.versions.state import Rule, State
from shared.wire.messages import ResponseCreate, SessionStart
from tests.support.builders.gateway import report
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import TOPICS, Edge, quiet

ROOT: Final = Path(__file__).parents[3]
CLOCK: Final = "shared/process/clock.py"
READINGS: Final = {"now_unix_ms", "wire_unix_ms", "monotonic_s"}
LEAVES: Final = ("shared/process/", "shared/telemetry/", "shared/wire/topics.py", "shared/wire/deadline.py")
"""Modules that are called from everywhere and decide nothing here."""
BOUNDS: Final = {"modules": 33, "returns": 21, "changes of room": 27, "readings of the clock": 3, "of the registry": 1}
"""Of the readings of the clock two decide. The third sets the timer of the deadlines, if no earlier one is set. One
return asks whether there is a worker at all, since without one the FAQ answers."""


@dataclass
class Trail:
    """The calls of a question's way in, of the product's own functions."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    clock: int = 0

    @contextmanager
    def recorded(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        module, caller = _module(frame), _module(frame.f_back)
        if event != "call" or module is None or frame.f_code.co_name.startswith("<"):
            return
        self.clock += module == CLOCK and caller not in {None, CLOCK} and frame.f_code.co_name in READINGS
        self.calls.append((module, frame.f_code.co_name))

    def figures(self) -> dict[str, int]:
        modules = _runs(module for module, _ in self.calls if not module.startswith(LEAVES))
        rooms = _runs(module.rpartition("/")[0] for module in modules)
        return {
            "modules": len({*modules}),
            "returns": len(modules) - len({*modules}),
            "changes of room": len(rooms) - 1,
            "readings of the clock": self.clock,
            "of the registry": sum(name == "state_at" for _, name in self.calls),
        }


def _module(frame: FrameType | None) -> str | None:
    """Return the module of a frame of the product."""
    path = Path(frame.f_code.co_filename) if frame is not None else ROOT
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
    return name if name.startswith(("gateway/", "shared/")) else None


def _runs(names: Iterator[str]) -> list[str]:
    """Return names without those that repeat the one before."""
    runs: list[str] = []
    for name in names:
        if not runs or runs[-1] != name:
            runs.append(name)
    return runs


class LastProducer(FakeProducer):
    """Kafka, at which the recording of a question's way ends."""

    async def enqueue(self, record: Outgoing) -> Any:
        sys.setprofile(None)
        return await super().enqueue(record)


@pytest.mark.parametrize(("others", "bounds"), [(0, BOUNDS), (1, BOUNDS | {"readings of the clock": 2})])
async def test_a_question_passes_few_modules_on_its_way_to_kafka(others: int, bounds: dict[str, int]) -> None:
    edge, trail = Edge(producer=LastProducer(), admits=True), Trail()
    edge.serving.admission_gate.update_worker("w", report("w", partitions=range(12), running=0))
    for number in range(others):
        other = await edge.connect().say(SessionStart(session_id=f"other-{number}"))
        await other.say(ResponseCreate(event_id="e", input="How long does it take?"))
    client = await edge.connect().say(SessionStart(session_id="s"))
    await quiet()
    with trail.recorded():
        await client.say(ResponseCreate(event_id="e", input="How do I return an item?"))
        await quiet()
    assert len(edge.asked) == others + 1
    figures = trail.figures()
    assert {name: (figures[name], most) for name, most in bounds.items() if figures[name] > most} == {}


def test_no_step_of_the_way_in_has_many_collaborators() -> None:
    widest = {step.__name__: sum(each.init for each in fields(step)) for step in (Gateway, Asking, Sending)}
    assert {name: num for name, num in widest.items() if num > 8} == {}


def test_only_one_file_decides_where_a_question_goes() -> None:
    assert [path.name for path in sorted((ROOT / "gateway").rglob("*.py")) if _writes_destination(path)] == [
        "sending.py"
    ]


def test_few_files_outside_the_destination_room_know_lanes() -> None:
    """Lanes are that room's; the others are a cursor's format, and what a lane exists for: rollouts, shadows."""
    knows = [path for path in (ROOT / "gateway").rglob("*.py") if "shared.wire.lanes import" in path.read_text()]
    assert len([path for path in knows if path.parent.name != "destination"]) <= 6, knows


def _writes_destination(path: Path) -> bool:
    assigned = [
        target
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    return any(isinstance(target, ast.Attribute) and target.attr == "destination" for target in assigned)


@dataclass
class MovingPlaces:
    """Redis, while which is asked the registry moves."""

    edge: Edge = field(init=False)

    async def claim(self, *_: Any, **__: Any) -> Claimed:
        self.edge.move(State(aliases={"champion": "old"}))
        await asyncio.sleep(0)
        return Claimed(3, "new")

    async def release(self, *_: Any) -> None: ...


async def test_a_move_of_the_registry_while_redis_is_asked_tears_no_destination() -> None:
    """The question's destination follows from one state: lane, version and epoch agree."""
    places = MovingPlaces()
    places.edge = edge = Edge(producer=FakeProducer(partitions=4), places=places)
    edge.serving.admission_gate.update_worker("w", report("w", lane="canary", partitions=range(4), revisions=("new",)))
    edge.move(State(aliases={"champion": "old", "canary": "new"}, rule=Rule(salt="a", share=1.0)))
    epoch = edge.registry.state.epoch
    await edge.connect().say(SessionStart(session_id="s"), ResponseCreate(event_id="e", input="How long?"))
    await quiet()
    [asked] = edge.asked
    [record] = edge.producer.of(TOPICS.requests("short", "canary"))
    assert (asked.revision, asked.epoch, record.partition) == ("new", epoch, 3)
    assert edge.registry.state.epoch == epoch + 1
