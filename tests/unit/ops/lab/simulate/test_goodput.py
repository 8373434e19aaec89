"""What the policy is for, in virtual time: nearly the bound's answers, each class its floor, little begun in vain."""

from itertools import pairwise
from typing import Literal

import pytest

from ops.lab.simulate.comparison import Comparison
from ops.lab.simulate.rows import SimulationRow
from ops.traces.costs import CPU
from shared.settings import Settings


def rows(
    loads: tuple[float, ...],
    policies: tuple[str, ...],
    lengths: Literal["known", "predicted"] = "predicted",
    light: float = 0.25,
) -> list[SimulationRow]:
    """Half a minute of the bimodal trace."""
    experiment = Comparison(
        light=light,
        traces=("bimodal",),
        loads=loads,
        policies=policies,
        slots=16,
        seconds=30.0,
        lengths=lengths,
        costs=CPU,
        settings=Settings(),
    )
    return experiment.run(lambda _: None)


@pytest.mark.parametrize("lengths", ["known", "predicted"])
def test_under_overload_each_class_keeps_its_floor_and_little_is_begun_in_vain(
    lengths: Literal["known", "predicted"],
) -> None:
    """Half a minute is short, so the figures are below those of docs/simulation.md."""
    _, row = rows((3.0,), ("bound", "goodput"), lengths)
    assert row.of_bound is not None
    assert row.of_bound >= (0.76 if lengths == "known" else 0.68)
    for of_class in row.by_class.values():
        assert of_class.floor_ratio is not None
        assert of_class.floor_ratio >= 0.85
    assert row.wasted_steps is not None
    assert row.wasted_steps <= 0.06


def test_the_more_comes_the_no_fewer_are_answered_in_time() -> None:
    counts = [row.model_in_deadline for row in rows((1.0, 1.5, 3.0, 10.0), ("goodput",), "predicted")]
    assert all(more >= 0.95 * fewer for fewer, more in pairwise(counts))


@pytest.mark.parametrize("load", [1.0, 2.0, 3.0])
def test_with_a_light_model_on_the_same_cores_more_is_answered_in_time(load: float) -> None:
    alone, laddered = rows((load,), ("goodput", "ladder"))
    assert laddered.model_in_deadline >= (1.0 if load == 1.0 else 1.3) * alone.model_in_deadline
    assert sum(laddered.by_lane.values()) == laddered.model_in_deadline
    assert laddered.by_lane["champion"] > 0


def test_a_light_model_that_costs_as_much_gains_next_to_nothing() -> None:
    alone, laddered = rows((2.0,), ("goodput", "ladder"), light=1.0)
    assert laddered.model_in_deadline <= 1.15 * alone.model_in_deadline
