"""The ladder moves one rung at a time, down in seconds, up in minutes, and always to a lane that can answer."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gateway.destination.ladder import STEPS, Ladder, LadderPolicy, Step
from shared.versions.state import Rung
from shared.wire.lanes import CHAMPION
from shared.wire.session_key import SessionKey

POLICY = LadderPolicy(fewest=2, fall_ms=2_000, rise_ms=60_000)
SESSION = SessionKey("demo", "s")


@dataclass(slots=True)
class Gateway:
    """One that asks the ladder as `AdmissionGate` does."""

    ladder: Ladder = field(default_factory=lambda: Ladder(POLICY))
    now: float = 0.0

    def ask(self, live: set[Step], places: set[Step], *, after_ms: float = 0.0) -> Step | None:
        """Return the lane that gets a request; `places` are the lanes that could answer it in time."""
        self.now += after_ms
        ladder = self.ladder
        taken = next((lane for lane in ladder.offers(live) if lane in places), None)
        ladder.record_outcome(SESSION, taken, live, has_place=places.__contains__, now_unix_ms=self.now)
        return taken

    def fall(self) -> None:
        """Have the level fall a rung, by requests for which the lanes down to it have no place."""
        before, at = self.ladder.level, STEPS.index(self.ladder.level)
        for _ in range(3):
            self.ask(set(STEPS), set(STEPS[at + 1 :]), after_ms=1_000)
        assert STEPS.index(self.ladder.level) == STEPS.index(before) + 1


lanes = st.sets(st.sampled_from(STEPS))
asked = st.tuples(lanes, lanes, st.floats(0, 70_000))


@given(st.lists(asked, max_size=60), st.none() | st.sampled_from(("champion", "light", "cpu", "faq")))
def test_the_ladder_keeps_its_promises_in_any_history(
    requests: list[tuple[set[Step], set[Step], float]], hold: Rung | None
) -> None:
    gateway = Gateway()
    ladder = gateway.ladder
    ladder.hold = hold
    moved = 0.0
    for live, places, after_ms in requests:
        level = ladder.level
        taken = gateway.ask(live, places, after_ms=after_ms)
        able = [lane for lane in STEPS if lane in live & places]
        if hold is not None:
            assert taken in {None, hold}
            assert (ladder.level, ladder.rung) == (CHAMPION, hold)
            continue
        if live:
            assert taken in live | {None}
            assert (taken is None) == (not able)  # the FAQ, if no lane can answer
        below = [lane for lane in able if STEPS.index(lane) >= STEPS.index(level)]
        assert not below or taken == below[0]  # no rung is skipped that could answer
        if ladder.level != level:
            assert ladder.level in live
            low, high = sorted(STEPS.index(lane) for lane in (level, ladder.level))
            assert not live.intersection(STEPS[low + 1 : high])  # one rung at a time
            assert STEPS.index(level) == low or gateway.now - moved >= POLICY.rise_ms
            moved = gateway.now


def test_the_level_falls_within_seconds_and_rises_after_minutes() -> None:
    gateway = Gateway()
    gateway.fall()
    assert gateway.ladder.level == "light"
    assert gateway.ask({"champion", "light"}, {"champion", "light"}) == "light"  # though the champion has a place again
    for _ in range(6):
        assert gateway.ask({"champion", "light"}, {"champion", "light"}, after_ms=9_990) == "light"
    gateway.ask({"champion", "light"}, {"champion", "light"}, after_ms=100)
    assert gateway.ladder.level == CHAMPION


def test_a_level_whose_rung_answers_most_stays_and_the_rest_goes_down() -> None:
    gateway = Gateway()
    taken = [gateway.ask(set(STEPS), set(STEPS[number % 3 == 0 :]), after_ms=500) for number in range(30)]
    assert (taken.count("light"), taken.count(CHAMPION), gateway.ladder.level) == (10, 20, CHAMPION)


def test_the_level_does_not_rise_while_the_rung_above_has_no_place_for_many() -> None:
    gateway = Gateway()
    gateway.fall()
    for number in range(300):
        gateway.ask({"champion", "light"}, {"champion", "light"} if number % 10 else {"light"}, after_ms=1_000)
    assert gateway.ladder.level == "light"


def test_after_minutes_without_a_question_it_rises_one_rung() -> None:
    gateway = Gateway()
    gateway.fall()
    for after_ms, level in ((POLICY.rise_ms - 1, "light"), (POLICY.rise_ms, CHAMPION), (2 * POLICY.rise_ms, CHAMPION)):
        gateway.ladder.rest(gateway.now + after_ms)
        assert gateway.ladder.level == level


def test_it_falls_one_rung_at_a_time_and_never_to_a_rung_without_workers() -> None:
    gateway = Gateway()
    for _ in range(9):
        gateway.ask({CHAMPION}, set(), after_ms=1_000)
    assert gateway.ladder.level == CHAMPION
    gateway.fall()
    gateway.fall()
    assert gateway.ladder.level == "cpu"


def test_the_lower_rung_that_gave_a_conversations_last_answer_is_known() -> None:
    gateway = Gateway()
    assert SESSION not in gateway.ladder.seats
    gateway.ask({"champion", "light"}, {"light"})
    assert gateway.ladder.seats[SESSION] == "light"
    gateway.ask({"champion", "light"}, {"champion"})
    assert SESSION not in gateway.ladder.seats


def test_without_any_live_worker_the_champions_topic_gets_the_request() -> None:
    assert Ladder().offers(set()) == [CHAMPION]
    assert Ladder().offers({"light"}) == ["light"]
