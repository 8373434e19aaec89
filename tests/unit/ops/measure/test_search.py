"""The stepwise search finds the largest load that passes, and always comes to an end."""

from hypothesis import given
from hypothesis import strategies as st

from ops.measure.search import StepSearch


def _run(search: StepSearch, threshold: int) -> list[int]:
    asked: list[int] = []
    while (load := search.next_load()) is not None:
        asked.append(load)
        assert len(asked) < 100, "the search does not end"
        search.passed(passed=load <= threshold)
    return asked


@given(threshold=st.integers(min_value=0, max_value=5_000), start=st.integers(min_value=1, max_value=1_000))
def test_the_best_passes_and_a_little_more_does_not(threshold: int, start: int) -> None:
    """Within five per cent of where a server's limit is, or at the end of what was allowed."""
    search = StepSearch(start=start, limit=4_000)
    asked = _run(search, threshold)
    assert search.best <= threshold
    if threshold >= 4_000:
        assert search.best == 4_000
    elif threshold >= start:
        assert search.best * 1.05 + 2 >= threshold
    assert len(asked) == len(set(asked))
