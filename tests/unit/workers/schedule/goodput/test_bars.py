"""How dear a request may be: the cheapest make up the share of the work that is served, and no dearer one waits."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.messages import Bucket
from tests.support.builders.worker import LinearCosts
from tests.support.fakes.scheduler_model import make_sequence
from workers.schedule.goodput.bars import Bars
from workers.schedule.goodput.forecast import Forecast
from workers.schedule.goodput.queue import Item
from workers.schedule.lengths import OutputLengths

COSTS = st.lists(st.integers(1, 60), min_size=100, max_size=100)


def items(lengths: Iterable[int], bucket: Bucket = "short") -> list[Item]:
    """Return items with these numbers of prompt tokens."""
    forecast = Forecast(LinearCosts(), OutputLengths(), num_slots=4)
    return [
        forecast.item(make_sequence(f"s{number}", prompt=length, output=1, bucket=bucket))
        for number, length in enumerate(lengths)
    ]


def bars_of(*offered: list[Item]) -> Bars:
    bars = Bars()
    for of_class in offered:
        for item in of_class:
            bars.offered(item)
    return bars


@given(costs=COSTS, share=st.floats(0.01, 1.0))
def test_the_dearest_are_turned_away_and_no_more_work_than_cannot_be_served(costs: list[int], share: float) -> None:
    offered = items(costs)
    over = bars_of(offered).over(offered, share, set())
    kept = [item for item in offered if item not in over]
    assert sum(item.cost_ms for item in kept) >= share * sum(item.cost_ms for item in offered)
    assert all(item.dearness > max(one.dearness for one in kept) for item in over)


@pytest.mark.parametrize(("num_offered", "share"), [(100, 0.96), (99, 0.1)])
def test_while_nearly_all_is_served_or_few_have_come_nobody_is_turned_away(num_offered: int, share: float) -> None:
    offered = items(range(1, num_offered + 1))
    assert bars_of(offered).over(offered, share, set()) == []


def test_what_is_worth_more_may_cost_more() -> None:
    offered = items(range(1, 101))
    dear = offered[-1]
    assert dear in bars_of(offered).over([dear], 0.5, set())
    dear.sequence.weight = 10.0
    assert bars_of(offered).over([dear], 0.5, set()) == []


@pytest.mark.parametrize("floors", [set[str](), {"long"}])
def test_a_class_below_its_floor_is_measured_by_its_own(floors: set[str]) -> None:
    """Next to two hundred short ones every long one is above the bar; measured within its class the cheaper ones are
    not."""
    short, long = items([10] * 200), items(range(100, 300, 2), "long")
    over = bars_of(long, short).over(long, 0.4, floors)
    assert long[-1] in over
    assert (long[0] in over) == (not floors)
