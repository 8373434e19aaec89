"""Ten times more is asked than can be answered: everyone has one answer, in time."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from rich.console import Console

from shared.settings import Settings
from tests.bench.overload.outcome import MOST, Ending
from tests.bench.overload.program import Measured, OverloadOptions, measure_overload

GRACE_S = 0.25
SECONDS = 2.0
AT_ONCE = {"infeasible", "overload", "breaker"}

pytestmark = pytest.mark.slow


@pytest_asyncio.fixture(scope="module")
async def measured() -> AsyncIterator[Measured]:
    """The bench itself, in short: half of capacity, up to ten times it, half again."""
    options = OverloadOptions(seconds=SECONDS, seed=1, engine="fake", broker="embedded", json_path=None)
    yield await measure_overload(Settings(), options, Console(quiet=True))


async def test_every_request_has_exactly_one_terminal_event(measured: Measured) -> None:
    """And none was refused: so many connections share the load that no limit is met."""
    assert len(measured.asked) > 100
    assert {one.terminals for one in measured.asked} == {1}
    assert {one.error for one in measured.asked} == {None}
    assert all(one.created_s is not None for one in measured.asked)
    assert (measured.overload.missing, measured.overload.repeated) == (0, 0)


async def test_each_terminal_event_is_of_a_known_kind(measured: Measured) -> None:
    """By the model, or by the fallback: completed, with its source."""
    for one in measured.asked:
        if one.source == "model":
            assert one.status in {"completed", "incomplete"}
            assert one.reason in {"stop", "max_output_tokens", "deadline"}
        else:
            assert (one.source in {"faq", "busy"}, one.status, one.reason) == (True, "completed", "stop")


async def test_no_answer_is_later_than_its_deadline_and_a_quarter_of_a_second(measured: Measured) -> None:
    """From when it was sent, so that a client that was held up itself is not taken for a late gateway."""
    for one in measured.asked:
        assert one.sent_s is not None
        assert one.done_s is not None
        assert one.done_s - one.sent_s <= one.deadline_ms / 1_000 + GRACE_S


async def test_under_ten_times_the_load_the_gateway_answers_many_itself_and_the_model_goes_on(
    measured: Measured,
) -> None:
    """What the workers never see."""
    most = next(row for row in measured.overload.phases if row.phase == MOST)
    assert most.endings[Ending.AT_ONCE.value] > 0
    assert most.endings[Ending.IN_TIME.value] > 0
    assert most.in_time_per_s > 0
    assert measured.overload.begun_late <= measured.overload.begun // 100


async def test_what_clients_saw_is_what_the_gateway_counted(measured: Measured) -> None:
    """An answer without a predicted first token is one that the workers did not get."""
    seen = sum(row.endings[Ending.AT_ONCE.value] for row in measured.overload.phases)
    rows = measured.overload.phases
    assert seen == sum(number for row in rows for reason, number in row.by_reason.items() if reason in AT_ONCE)
