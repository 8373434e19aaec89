"""Messages on the wire match the protocol's document and round-trip."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from shared.conversation.handoffs import Handoff
from shared.wire.messages import (
    CLIENT_TYPES,
    Cancel,
    ChatRequest,
    ClientMessage,
    Notice,
    PeopleRecord,
    Reply,
    ServerMessage,
)
from shared.wire.outcome import Message
from shared.wire.reports import WorkerReport
from tests.support.hostile.message_strategies import any_of
from tests.support.reliability import Reliability

UNIONS = (ClientMessage, ServerMessage, ChatRequest, Reply, Notice, PeopleRecord, Handoff)
EVERYTHING = ClientMessage | ServerMessage | ChatRequest | Reply | Notice | PeopleRecord | Handoff | WorkerReport


KINDS = tuple(part for union in (*UNIONS, WorkerReport) for part in getattr(union, "__args__", (union,)))
EXAMPLES = 10_000


def as_written_both_ways(message: Message) -> None:
    """Check that a message round-trips, both forms have the same fields, and fields of a later version are ignored."""
    fields = []
    for codec in (msgspec.json, msgspec.msgpack):
        wire = codec.encode(message)
        assert codec.decode(wire, type=EVERYTHING) == message
        fields.append(codec.decode(wire))
        more = {**fields[-1], "of_a_later_version": {"deep": [1, None]}}
        assert codec.decode(codec.encode(more), type=EVERYTHING) == message
    assert fields[0] == fields[1]


def tried(kind: type[Message], examples: int) -> int:
    """How many examples of each message type went both ways."""
    count = 0

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(any_of(kind))
    def each(message: Message) -> None:
        nonlocal count
        count += 1
        as_written_both_ways(message)

    each()
    return count


@pytest.mark.promise(2)
def test_every_message_round_trips_unchanged(reliability: Reliability) -> None:
    examples = reliability.amount(EXAMPLES, part=25)
    fewest = min(tried(kind, examples) for kind in KINDS if kind.__struct_fields__)
    for kind in KINDS:
        if not kind.__struct_fields__:  # it has one form
            as_written_both_ways(kind())
    reliability.found(
        figure=f"{len(KINDS)} types of message, {fewest} examples or more of each that has fields",
        target=f"{EXAMPLES} examples of each type of message",
        holds=fewest >= examples,
    )


def test_the_types_that_clients_may_send_are_those_of_the_union() -> None:
    tags = {part.__struct_config__.tag for part in ClientMessage.__args__}
    assert tags == CLIENT_TYPES


GOLDEN = (Path(__file__).parents[3] / "golden" / "wire.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("wire", GOLDEN)
def test_the_wire_uses_the_protocols_names(wire: str) -> None:
    """An unknown name would be dropped; a missing one would be refused, or filled in with its default."""
    assert msgspec.json.encode(msgspec.json.decode(wire, type=EVERYTHING)).decode() == wire


def test_every_message_has_its_golden_encoding() -> None:
    every: set[Any] = {part for union in UNIONS for part in getattr(union, "__args__", (union,))}
    assert {type(msgspec.json.decode(wire, type=EVERYTHING)) for wire in GOLDEN} == every


def test_messages_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Cancel(request_id="r").request_id = "other"  # type: ignore[misc]
