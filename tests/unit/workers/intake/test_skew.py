"""Clocks that disagree are noticed where it shows, and told once a minute."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from workers.intake.skew import MAX_SOURCES, SkewReport, SkewWatch, skew_ms

NOW = 1_790_000_000_000.0
MINUTE = 60_000


def test_what_was_created_after_now_is_ahead_by_the_difference() -> None:
    assert skew_ms(int(NOW) + 5 * MINUTE, NOW, None) == 5 * MINUTE


def test_what_was_created_before_the_broker_had_it_is_behind_by_the_difference() -> None:
    assert skew_ms(int(NOW) - 6 * MINUTE, NOW, int(NOW) - MINUTE) == -5 * MINUTE


def test_without_the_brokers_clock_a_record_that_waited_is_no_skew() -> None:
    assert skew_ms(int(NOW) - 5 * MINUTE, NOW, None) == 0


@given(st.integers(0, 2**43), st.integers(0, 2**43), st.integers(0, 10**7))
def test_clocks_that_agree_never_show_a_skew(created: int, on_the_way: int, waited: int) -> None:
    """Created, then taken in at once, then read: however long it lay."""
    arrived = created
    assert skew_ms(created, arrived + waited + on_the_way, arrived) == 0


def test_up_to_a_second_is_nothing() -> None:
    watch = SkewWatch()
    assert [watch.notice(skew, NOW) for skew in (0, 1_000, -1_000)] == [None] * 3
    assert watch.notice(1_001, NOW) == SkewReport(1, 1_001)


def test_ahead_is_told_at_once_and_then_together_once_a_minute() -> None:
    watch = SkewWatch()
    assert watch.notice(2_000, NOW) == SkewReport(1, 2_000)
    assert watch.notice(300_000, NOW + 1) is None
    assert watch.notice(400_000, NOW + MINUTE - 1) is None
    assert watch.notice(2_000, NOW + MINUTE) == SkewReport(3, 400_000)
    assert watch.notice(2_000, NOW + 2 * MINUTE) == SkewReport(1, 2_000)


# --- behind, or held back


@dataclass
class Broker:
    """A producer whose clock is `behind_ms`, and a worker that reads what the broker took in."""

    behind_ms: int = 0
    watch: SkewWatch = field(default_factory=SkewWatch)
    reports: list[SkewReport] = field(default_factory=list)

    def take_in(self, arrived_s: float, *, held_ms: int = 0, read_s: float | None = None, source: bytes = b"g") -> None:
        arrived = int(NOW + arrived_s * 1_000)
        created = arrived - held_ms - self.behind_ms
        now = NOW + (arrived_s if read_s is None else read_s) * 1_000
        skew = skew_ms(created, now, arrived)
        report = self.watch.notice(skew, now, arrived_unix_ms=arrived, source=source)
        if report is not None:
            self.reports.append(report)


def test_what_was_held_back_while_kafka_was_away_is_no_clock() -> None:
    """Twenty seconds' requests come at once, and the next ones as ever; their worker needs its time for them."""
    broker = Broker()
    for number in range(200):
        broker.take_in(number / 100, held_ms=20_000 - number * 90, read_s=number / 10)
    for second in range(2, 90):
        broker.take_in(second, read_s=20 + second)
    assert broker.reports == []


def test_a_second_outage_does_not_add_to_the_first() -> None:
    broker = Broker()
    for outage_s in (0.0, 20.0, 40.0):
        broker.take_in(outage_s, held_ms=10_000)
        broker.take_in(outage_s + 1)
    assert broker.reports == []


def test_the_order_in_which_they_are_read_changes_nothing() -> None:
    """What was held back has a deadline of its own: it may be served after what came later."""
    broker = Broker()
    broker.take_in(9, read_s=9)
    for number in range(9):
        broker.take_in(number, held_ms=10_000, read_s=9 + number)
    assert broker.reports == []


def test_two_outages_with_nothing_between_them_are_two() -> None:
    broker = Broker()
    for second in (0.0, 61.0, 122.0):
        broker.take_in(second, held_ms=10_000)
    assert broker.reports == []


def test_a_clock_that_is_behind_is_told_after_five_seconds_by_the_record_least_on_its_way() -> None:
    broker = Broker(behind_ms=7_000)
    for second in range(5):
        broker.take_in(second, held_ms=300 - 50 * second)
    assert broker.reports == []
    broker.take_in(5, held_ms=800)
    assert broker.reports == [SkewReport(6, -7_100)]


def test_it_is_told_once_a_minute_as_long_as_it_lasts() -> None:
    broker = Broker(behind_ms=7_000)
    for second in range(180):
        broker.take_in(second)
    assert len(broker.reports) == 3
    assert sum(report.records for report in broker.reports) > 120


def test_one_producers_clock_says_nothing_of_anothers() -> None:
    broker, right = Broker(behind_ms=7_000), Broker()
    right.watch = broker.watch
    for second in range(6):
        broker.take_in(second, source=b"gateway-0")
        right.take_in(second, source=b"gateway-1")
    assert broker.reports == [SkewReport(6, -7_000)]
    assert right.reports == []


def test_names_that_producers_make_up_take_no_more_room_than_a_few() -> None:
    broker = Broker(behind_ms=7_000)
    for number in range(10 * MAX_SOURCES):
        broker.take_in(number, source=b"made-up-%d" % number)
    assert len(broker.watch._producers) == MAX_SOURCES


@given(st.lists(st.tuples(st.integers(0, 4_999), st.integers(0, 600_000)), max_size=50))
def test_however_long_one_burst_was_held_back_no_clock_is_blamed(burst: list[tuple[int, int]]) -> None:
    broker = Broker()
    for arrived_ms, held_ms in burst:
        broker.take_in(arrived_ms / 1_000, held_ms=held_ms)
    assert broker.reports == []
