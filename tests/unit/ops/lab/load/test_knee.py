"""The knee: which loads pass, when a rate is decided, and which rate is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.client.outcome import Outcome
from ops.lab.load.figures.report import summarise
from ops.lab.load.figures.tries import Bounds, decided


def answer(ttft_ms: float, e2e_ms: float, *, source: str = "model") -> Outcome:
    return Outcome(
        scheduled_s=0.0, deadline_ms=1_000, first_s=ttft_ms / 1e3, done_s=e2e_ms / 1e3, source=source,
        status="completed", reason="stop",
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    ("bounds", "broken"),
    [
        (Bounds(ttft_p99_ms=None, e2e_p99_ms=None, goodput=0.5), []),
        (Bounds(ttft_p99_ms=200, e2e_p99_ms=900, goodput=0.66), []),
        (
            Bounds(ttft_p99_ms=199, e2e_p99_ms=899, goodput=0.7),
            ["TTFT p99 200.00 ms", "end to end p99 900.00 ms", "in time 66.7%"],
        ),
    ],
)
def test_a_load_breaks_the_bounds_that_it_is_beyond(bounds: Bounds, broken: list[str]) -> None:
    report = summarise([answer(100, 500), answer(200, 900), answer(1, 1, source="faq")])
    assert bounds.broken_by(report) == broken


def test_where_the_model_answered_nothing_every_bound_is_broken() -> None:
    report = summarise([answer(1, 1, source="faq")])
    assert len(Bounds(ttft_p99_ms=1e9, e2e_p99_ms=1e9, goodput=0.1).broken_by(report)) == 3


@given(st.integers(1, 15), st.data())
def test_most_of_the_tries_decide_and_no_more_are_made_than_that_takes(tries: int, data: st.DataObject) -> None:
    outcomes = data.draw(st.lists(st.booleans(), min_size=tries, max_size=tries))
    passes: list[bool] = []
    while (verdict := decided(passes, tries)) is None:
        passes.append(outcomes[len(passes)])
    assert verdict == (sum(outcomes) > tries // 2)
    assert len(passes) <= tries
    assert decided(passes[:-1], tries) is None
