"""Ten times more is asked than can be answered: everyone has one answer, in time."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.settings import Settings
from tests.support.overload import DEADLINE_MS, MOST, Ending, Overload, measure_overload
from tests.support.reliability import Reliability

GRACE_S = 0.25
SECONDS = 15
AT_ONCE = {"infeasible", "breaker"}

pytestmark = pytest.mark.long


@pytest_asyncio.fixture(scope="module")
async def overload(reliability: Reliability) -> AsyncIterator[Overload]:
    """Half of capacity, up to ten times it, half again. In the ordinary suite in short."""
    broker = "kafka" if reliability.whole else "embedded"
    yield await measure_overload(Settings(), seconds=reliability.amount(SECONDS, part=2), seed=1, broker=broker)


async def test_every_request_has_exactly_one_terminal_event(overload: Overload) -> None:
    """And none was refused: so many connections share the load that no limit is met."""
    assert len(overload.asked) > 100
    assert {one.terminals for one in overload.asked} == {1}
    assert {one.error for one in overload.asked} == {None}


async def test_each_terminal_event_is_of_a_known_kind(overload: Overload) -> None:
    """By the model, or by the fallback: completed, with its source."""
    for one in overload.asked:
        if one.source == "model":
            assert one.status in {"completed", "incomplete"}
            assert one.reason in {"stop", "max_output_tokens", "deadline"}
        else:
            assert (one.source in {"faq", "busy"}, one.status, one.reason) == (True, "completed", "stop")


async def test_no_answer_is_later_than_its_deadline_and_a_quarter_of_a_second(overload: Overload) -> None:
    """From when it was sent, so that a client that was held up itself is not taken for a late gateway."""
    for one in overload.asked:
        assert one.sent_s is not None
        assert one.done_s is not None
        assert one.done_s - one.sent_s <= DEADLINE_MS / 1_000 + GRACE_S


async def test_under_ten_times_the_load_the_gateway_answers_many_itself_and_the_model_goes_on(
    overload: Overload,
) -> None:
    """What the workers never see."""
    endings = [one.ending for one in overload.phases[MOST].asked(overload.asked)]
    assert endings.count(Ending.AT_ONCE) > 0
    assert endings.count(Ending.IN_TIME) > 0


async def test_what_clients_saw_is_what_the_gateway_counted(overload: Overload) -> None:
    """An answer without a predicted first token is one that the workers did not get."""
    seen = sum(one.ending is Ending.AT_ONCE for one in overload.asked)
    assert seen == sum(count for reason, count in overload.fallbacks.items() if reason in AT_ONCE)


@pytest.mark.promise(10)
async def test_ten_times_the_load_costs_little_goodput_and_is_soon_over(
    overload: Overload, reliability: Reliability
) -> None:
    """Two seconds a phase show that what is late is not begun; goodput and recovery take longer."""
    refusal_ms, recovery_s = overload.at_once_p99_ms(), overload.recovery_s
    soon = recovery_s is not None and recovery_s <= 10 and refusal_ms is not None and refusal_ms < 50
    reliability.found(
        figure=f"goodput at {MOST} {overload.kept:.0%} of peak; refusal p99 {refusal_ms} ms; recovery {recovery_s} s; "
        f"begun late {overload.begun_late} of {overload.begun:,}",
        target="goodput at 10× ≥ 80 % of peak; refusal < 50 ms; work begun late ≤ 1 %; recovery ≤ 10 s",
        holds=overload.begun_late <= overload.begun // 100
        and (not reliability.whole or (overload.kept >= 0.8 and soon)),
    )
