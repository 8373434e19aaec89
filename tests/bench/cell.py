"""A cell is one measured configuration: set up, measured in rounds in turn with others, and divided by its base.

Other load on the machine affects all cells of a round alike, so a ratio divides two figures of one round, and the
median over the rounds counts.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct
from rich.console import Console

from ops.measure.environment import BrokerKind, environment
from ops.measure.runner import markdown, show, verdict, write_json
from ops.stack.processes import ServiceError

Figures = Mapping[str, float | None]
Measure = Callable[[int], Awaitable[Figures]]
"""One round, called with its number. None replaces a figure that could not be measured."""

FAILED: Final = "failed"
"""The figure that counts requests without a result: if it is above 0, no target is met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """`open` sets the configuration up for one round. `bases` name the cells that its figures are divided by."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Measure]]
    bases: tuple[str, ...] = ()


def standing(name: str, measure: Measure, *, bases: tuple[str, ...] = ()) -> Cell:
    """A cell that stands already."""
    return Cell(name=name, open=lambda: nullcontext(measure), bases=bases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a figure, or with `base` its ratio, is held against."""

    cell: str
    figure: str
    value: float
    base: str | None = None
    at_least: bool = False


class Measured(Struct, frozen=True, kw_only=True):
    """A cell's figures, round by round. `unmeasured` says why they end early."""

    name: str
    bases: tuple[str, ...]
    rounds: list[dict[str, float | None]]
    unmeasured: str = ""

    @property
    def failed(self) -> int:
        return int(sum(one.get(FAILED) or 0 for one in self.rounds))

    def medians(self) -> dict[str, float | None]:
        """The median of each figure over the rounds that have it."""
        names = dict.fromkeys(name for one in self.rounds for name in one)
        return {name: middle(one.get(name) for one in self.rounds) for name in names}

    def ratios(self, base: "Measured") -> dict[str, float | None]:
        """The median over the rounds of each round's own quotient, for the figures that both have."""
        return {name: middle(of_rounds) for name, of_rounds in self.round_ratios(base).items()}

    def round_ratios(self, base: "Measured") -> dict[str, list[float | None]]:
        """The quotients themselves, round by round."""
        pairs = list(zip(self.rounds, base.rounds, strict=False))
        names = dict.fromkeys(name for ours, theirs in pairs for name in ours if name in theirs and name != FAILED)
        return {name: [_quotient(ours.get(name), theirs.get(name)) for ours, theirs in pairs] for name in names}


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _quotient(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


async def run_cells(cells: Sequence[Cell], rounds: int, console: Console) -> list[Measured]:
    """Measure every cell once a round, forwards and backwards in turn. A failing cell is reported and left out of later
    rounds. Raises `ServiceError` if none could be measured.
    """
    found: dict[str, list[dict[str, float | None]]] = {cell.name: [] for cell in cells}
    lost: dict[str, str] = {}
    for number in range(rounds):
        for cell in cells if number % 2 == 0 else list(reversed(cells)):
            if cell.name in lost:
                continue
            console.print(f"round {number + 1} of {rounds}: {cell.name}", markup=False, highlight=False)
            try:
                async with cell.open() as measure:
                    found[cell.name].append(dict(await measure(number)))
            except ServiceError as error:
                lost[cell.name] = str(error)
                console.print(f"FAILED: {cell.name}: {error}", style="bold", markup=False)
    if not any(found.values()):
        raise ServiceError("; ".join(f"{name}: {why}" for name, why in lost.items()))
    return [
        Measured(name=cell.name, bases=cell.bases, rounds=found[cell.name], unmeasured=lost.get(cell.name, ""))
        for cell in cells
    ]


def report(measured: Sequence[Measured], targets: Sequence[Target]) -> str:
    """Return the medians, the ratios and the targets as Markdown: a row a figure, a column a cell. Behind a ratio's
    median stand its rounds."""
    parts = [_table("", {one.name: one.medians() for one in measured})]
    ratios = {
        f"{one.name} of {base.name}": {name: _with_rounds(of) for name, of in one.round_ratios(base).items()}
        for one in measured
        for base in measured
        if base.name in one.bases
    }
    if any(ratios.values()):
        parts.append(_table("ratio", ratios))
    by_name = {one.name: one for one in measured}
    held = [_held(target, by_name) for target in targets if target.cell in by_name]
    failed = [f"FAILED: {one.name}: {one.unmeasured}" for one in measured if one.unmeasured]
    return "\n\n".join([*parts, "\n".join([*held, *failed])]).rstrip()


def _with_rounds(of_rounds: Sequence[float | None]) -> str:
    shown = show(middle(of_rounds))
    return shown if len(of_rounds) < 2 else f"{shown} ({', '.join(map(show, of_rounds))})"


def _table(title: str, columns: Mapping[str, Mapping[str, str | float | None]]) -> str:
    names = dict.fromkeys(name for figures in columns.values() for name in figures)
    return markdown([title, *columns], [[name, *(of.get(name) for of in columns.values())] for name in names])


def _held(target: Target, by_name: Mapping[str, Measured]) -> str:
    cell = by_name[target.cell]
    if target.base is None:
        what, value = f"{target.cell}, {target.figure}", cell.medians().get(target.figure)
    else:
        base = by_name.get(target.base)
        what = f"{target.cell} of {target.base}, {target.figure}"
        value = None if base is None else cell.ratios(base).get(target.figure)
    said = verdict(value, target.value, at_least=target.at_least, failed=cell.failed)
    return f"{what}: {show(value)} ({said})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Options of every bench: the number of rounds, the result's path. `engine` and `broker` describe the run."""

    rounds: int
    json_path: Path | None
    engine: str
    broker: BrokerKind
    targets: tuple[Target, ...] = ()

    async def run(
        self,
        cells: Sequence[Cell],
        console: Console,
        told: Callable[[Sequence[Measured]], Mapping[str, object]] = lambda _: {},
        **head: object,
    ) -> list[Measured]:
        """Measure, print and write; `head` is added to the JSON along with the cells and the last argument. Raises
        `ServiceError`."""
        facts = environment(engine=self.engine, broker=self.broker)
        measured = await run_cells(cells, self.rounds, console)
        print(report(measured, self.targets))
        by_name = {one.name: one for one in measured}
        pairs = [(one, by_name[base]) for one in measured for base in one.bases if base in by_name]
        result = {
            **head,
            **told(measured),
            "medians": {one.name: one.medians() for one in measured},
            "ratios": {f"{one.name} of {base.name}": one.ratios(base) for one, base in pairs},
            "round_ratios": {f"{one.name} of {base.name}": one.round_ratios(base) for one, base in pairs},
            "cells": measured,
            "environment": facts,
        }
        write_json(self.json_path, result)
        return measured
