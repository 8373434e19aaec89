"""Cells are measured in rounds in turn, divided within a round, and held against targets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from ops.stack.processes import ServiceError
from tests.bench.cell import Bench, Cell, Figures, Measure, Measured, Target, report, run_cells

QUIET = Console(quiet=True)


def measured(name: str, *rounds: dict[str, float | None], bases: tuple[str, ...] = ()) -> Measured:
    return Measured(name=name, bases=bases, rounds=list(rounds))


async def test_rounds_go_forwards_and_backwards_and_each_sets_its_cell_up() -> None:
    """What drifts meanwhile hits the first and the last alike."""
    told: list[str] = []

    def cell(name: str) -> Cell:
        async def measure(number: int) -> Figures:
            told.append(f"{name}{number}")
            return {"n": float(number)}

        @asynccontextmanager
        async def opened() -> AsyncIterator[Measure]:
            told.append(f"+{name}")
            yield measure
            told.append(f"-{name}")

        return Cell(name=name, open=opened)

    found = await run_cells([cell("a"), cell("b")], 2, QUIET)
    assert told == ["+a", "a0", "-a", "+b", "b0", "-b", "+b", "b1", "-b", "+a", "a1", "-a"]
    assert [one.rounds for one in found] == [[{"n": 0.0}, {"n": 1.0}]] * 2


async def test_a_cell_that_fails_is_named_and_the_others_go_on() -> None:
    async def fails(_: int) -> Figures:
        raise ServiceError("no such thing")

    async def works(_: int) -> Figures:
        return {"n": 1.0}

    cells = [Cell(name="bad", open=lambda: nullcontext(fails)), Cell(name="good", open=lambda: nullcontext(works))]
    found = await run_cells(cells, 3, QUIET)
    assert [(one.unmeasured, len(one.rounds)) for one in found] == [("no such thing", 0), ("", 3)]
    assert "FAILED: bad: no such thing" in report(found, ())
    with pytest.raises(ServiceError, match="bad: no such thing"):
        await run_cells(cells[:1], 3, QUIET)


def test_ratios_are_of_figures_of_the_same_round() -> None:
    """A machine that is twice as slow in one round is so for both: the ratio stays."""
    ours = measured("ours", {"s": 3.0, "x": None}, {"s": 6.0, "x": 1.0}, {"s": 3.0, "x": 1.0})
    base = measured("base", {"s": 2.0, "x": 1.0}, {"s": 4.0, "x": 0.0}, {"s": 2.0, "x": 4.0})
    assert ours.ratios(base) == {"s": 1.5, "x": 0.25}
    assert ours.medians() == {"s": 3.0, "x": 1.0}


def test_a_target_is_met_missed_or_not_measured_and_a_failure_misses_it() -> None:
    cells = [
        measured("base", {"tok_s": 100.0}),
        measured("fast", {"tok_s": 95.0, "failed": 0}, bases=("base",)),
        measured("torn", {"tok_s": 95.0, "failed": 2}, bases=("base",)),
    ]
    targets = [Target(cell=name, figure="tok_s", base="base", value=0.9, at_least=True) for name in ("fast", "torn")]
    targets += [Target(cell="fast", figure="p50_ms", value=2.0), Target(cell="absent", figure="p50_ms", value=2.0)]
    said = report(cells, targets).splitlines()
    assert said[-3:] == [
        "fast of base, tok_s: 0.95 (≥ 0.9 met)",
        "torn of base, tok_s: 0.95 (≥ 0.9 missed: 2 failed)",
        "fast, p50_ms: – (≤ 2.00 not measured)",
    ]
    assert "| ratio | fast / base | torn / base |" in said
    assert "| tok_s | 0.95 | 0.95 |" in said


async def test_the_result_has_medians_ratios_and_every_round(tmp_path: Path) -> None:
    async def measure(number: int) -> Figures:
        return {"n": number + 1.0}

    path = tmp_path / "result.json"
    bench = Bench(rounds=2, json_path=path, engine="none", broker="embedded")
    cells = [
        Cell(name="base", open=lambda: nullcontext(measure)),
        Cell(name="one", open=lambda: nullcontext(measure), bases=("base", "missing")),
    ]
    await bench.run(cells, QUIET, records=7)
    result = msgspec.json.decode(path.read_bytes())
    assert result["records"] == 7
    assert result["medians"] == {"base": {"n": 1.5}, "one": {"n": 1.5}}
    assert result["ratios"] == {"one of base": {"n": 1.0}}
    assert [len(one["rounds"]) for one in result["cells"]] == [2, 2]
