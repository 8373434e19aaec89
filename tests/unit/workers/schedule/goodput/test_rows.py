"""How many rows run together: as many as the answers of every class bear, at little loss of throughput."""

from hypothesis import given
from hypothesis import strategies as st

from shared.wire.messages import Bucket
from tests.support.builders.worker import LinearCosts
from tests.support.fakes.scheduler_model import make_sequence
from workers.schedule.goodput.forecast import HELD, Forecast
from workers.schedule.goodput.rows import Rows
from workers.schedule.lengths import SHOWN, OutputLengths

SLOTS = 16


def most(*asked: tuple[int, Bucket], constant: float = 1.0) -> int:
    """Return the limit after a hundred observations of each: ten tokens within this many milliseconds, by class."""
    forecast = Forecast(LinearCosts(0.0, constant, 1.0), OutputLengths(), num_slots=SLOTS)
    rows = Rows(forecast, num_slots=SLOTS)
    for number in range(100):
        for within, bucket in asked:
            sequence = make_sequence(f"s{number}", output=10, soft=within, hard=within, bucket=bucket)
            sequence.output_hint = sequence.expected_output_tokens = 10
            rows.offered(forecast.item(sequence))
    return rows.most()


def test_the_class_with_the_least_time_a_token_decides() -> None:
    """Nine tenths of 160 ms are 14.4 a step: thirteen rows and the constant."""
    assert most((160, "long"), (1_000, "short")) == 13
    assert most((200, "short"), (1_000, "long")) == SLOTS


def test_a_class_that_no_longer_comes_does_not_count() -> None:
    forecast = Forecast(LinearCosts(0.0, 1.0, 1.0), OutputLengths(), num_slots=SLOTS)
    rows = Rows(forecast, num_slots=SLOTS)
    for number in range(800):
        within = 160 if number < 100 else 1_000
        bucket: Bucket = "long" if number < 100 else "short"
        sequence = make_sequence(f"s{number}", output=10, soft=within, hard=within, bucket=bucket)
        sequence.output_hint = sequence.expected_output_tokens = 10
        rows.offered(forecast.item(sequence))
        if number == 99:
            assert rows.most() == 13
    assert rows.most() == SLOTS


@given(within=st.integers(1, 400), constant=st.floats(0.1, 50.0))
def test_no_fewer_rows_run_than_the_deadlines_call_for_and_the_machine_never_does_much_less(
    within: int, constant: float
) -> None:
    rows = most((within, "short"), constant=constant)
    if rows < SLOTS:
        assert 10 * (constant + rows + 1) > 0.9 * within, "one row more would be too slow"
        assert rows / (constant + rows) >= 0.9 * SLOTS / (constant + SLOTS)


def shown(soft: int, *num_held: int) -> tuple[int, float]:
    """After a thousand answers whose first texts were held back so long."""
    lengths = OutputLengths(memory=10_000)
    for number in range(1_000):
        lengths.observe(SHOWN + "short", num_held[number % len(num_held)] + 1, ended_by_itself=True)
    forecast = Forecast(LinearCosts(0.0, 1.0, 1.0), lengths, num_slots=SLOTS)
    rows = Rows(forecast, num_slots=SLOTS)
    for number in range(100):
        sequence = make_sequence(f"s{number}", output=100, soft=soft, hard=10_000)
        sequence.expected_output_tokens, sequence.held = 100, True
        rows.offered(forecast.item(sequence))
    return rows.shown()


def test_as_many_run_as_show_their_first_texts_in_time() -> None:
    """Ten tokens of a step of one and as many milliseconds as there are rows."""
    assert shown(1_000, 10) == (SLOTS, HELD[-1])
    assert shown(80, 10) == (7, HELD[-1])


def test_those_who_hold_back_longest_are_given_up_where_that_lets_more_others_in() -> None:
    """One in eight holds back five times as long as the rest: for its sake two would run instead of fourteen."""
    assert shown(150, *[10] * 7, 50) == (14, 0.8)


def test_where_no_first_text_can_be_shown_in_time_the_rows_are_not_to_blame() -> None:
    assert shown(10, 10) == (SLOTS, HELD[-1])
