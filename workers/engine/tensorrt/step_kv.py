"""Keep a step's own keys and values: the graph writes them into the slots, or they are copied there behind it."""

from collections.abc import Sequence
from typing import Protocol

from workers.engine.device import Device, Execution, Stream
from workers.engine.device.slots import SlotLayout, StepLayout

# Of each row the tokens that its slot holds before the step, and how many of its new ones are no padding.
Spans = Sequence[tuple[int, int]]


class StepKv(Protocol):
    def bind(self, execution: Execution, first_slot: int, rows: int, width: int) -> None:
        """Have a step of `rows` sequences with `width` new tokens each read the slots from `first_slot` on."""

    def keep(self, first_slot: int, rows: int, width: int, spans: Spans) -> None:
        """Enqueue, behind such a step, what is still to do to have the new tokens in their slots."""


class InPlace:
    """Keys and values of a graph whose present caches are the slots themselves."""

    def __init__(self, slots: SlotLayout, base: int) -> None:
        self._slots = slots
        self._base = base

    def bind(self, execution: Execution, first_slot: int, rows: int, width: int) -> None:  # noqa: ARG002
        shape = self._slots.shape(rows)
        for past, present, address in self._slots.caches(self._base, first_slot):
            execution.bind(past, address, shape)
            execution.bind(present, address, shape)

    def keep(self, first_slot: int, rows: int, width: int, spans: Spans) -> None:
        """Do nothing: padding is in the slots too, behind every sequence."""


class Beside:
    """Keys and values of a graph that puts out the new tokens alone: a copy a row brings them to where its slot's
    tokens end.

    That place differs with every step, so the copies are no part of what is recorded. Padding stays behind.
    """

    def __init__(
        self, device: Device, slots: SlotLayout, base: int, compute: Stream, *, prefill_rows: int, prefill_tokens: int
    ) -> None:
        self._slots = slots
        self._base = base
        self._compute = compute
        largest = StepLayout(slots, prefill_rows, prefill_tokens), StepLayout(slots, slots.slots, 1)
        self._staged = device.allocate(max(step.num_bytes for step in largest))

    def bind(self, execution: Execution, first_slot: int, rows: int, width: int) -> None:
        step = StepLayout(self._slots, rows, width)
        for number, (past, present, address) in enumerate(self._slots.caches(self._base, first_slot)):
            execution.bind(past, address, self._slots.shape(rows))
            execution.bind(present, self._staged + number * step.cache_bytes, step.shape)

    def keep(self, first_slot: int, rows: int, width: int, spans: Spans) -> None:
        step = StepLayout(self._slots, rows, width)
        for row, (past, count) in enumerate(spans):
            target = self._slots.block(self._base, first_slot + row, past)
            self._compute.copy_block(target, step.block(self._staged, row), self._slots.extent(count))
