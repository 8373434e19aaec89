"""A request goes down the ladder by the reports of each lane's workers, and the price of a cold conversation counts."""

from dataclasses import dataclass, field

import pytest

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.choose import View, choose
from gateway.destination.destination import Destination, Fallback, Question
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from shared.versions.state import Rung, State
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.session_key import SessionKey
from tests.support.builders import gateway as builders

NOW = 1_000_000.0
SOFT_MS = 3_000
LATE = 60_000.0


@dataclass(slots=True)
class Gateway:
    admissions: LaneAdmissions = field(default_factory=lambda: LaneAdmissions(AdmissionPolicy()))
    ladder: Ladder = field(default_factory=Ladder)
    state: State = field(default_factory=State)
    num_asked: int = 0

    def report(
        self, lane: Lane, first_token_ms: float, *, cold_ms: float = 0.0, running: int = 8, now: float = NOW
    ) -> None:
        report = builders.report(
            name=lane,
            lane=lane,
            slots=8,
            running=running,
            first_token_ms=first_token_ms,
            service_ms=1.0,
            cold_ms=cold_ms,
        )
        self.admissions.observe(report, now)

    def ask(self, lane: Lane = CHAMPION, *, session: str = "s", now: float = NOW) -> Destination | Fallback:
        self.num_asked += 1
        question = Question(
            response_id=f"r{self.num_asked}",
            session=SessionKey("demo", session),
            deadline=Deadline.after(now, first_token_ms=SOFT_MS, whole_ms=15_000),
            received_unix_ms=now,
        )
        view = View(
            now_unix_ms=now,
            state=self.state,
            admissions=self.admissions,
            ladder=self.ladder,
            partition_of=lambda *_: 0,
        )
        where = choose(question, Destination(lane), view)
        self.admissions.note_first_reply(question.response_id, now)
        return where

    def tried(self, *lanes: Lane) -> None:
        """Have each lane's one try against its prediction behind it."""
        for lane in lanes:
            reader = self.admissions.of(lane).fleet.reader("short", 0, NOW)
            assert reader is not None
            reader.may_try("short", NOW, interval_ms=1_000)


def outcome(where: Destination | Fallback) -> tuple[Lane, str | None]:
    """Return the lane that gets or was to get a question, and the reason of a fallback."""
    return (where.lane, None) if isinstance(where, Destination) else (where.wanted.lane, where.reason)


@pytest.mark.parametrize(
    ("reported", "taken", "reason"),
    [
        ({CHAMPION: 100.0, "light": 100.0}, CHAMPION, None),
        ({CHAMPION: LATE, "light": 100.0, "cpu": 100.0}, "light", None),
        ({CHAMPION: LATE, "light": LATE, "cpu": 100.0}, "cpu", None),
        ({CHAMPION: LATE, "cpu": 100.0}, "cpu", None),
        ({"light": 100.0}, "light", None),
        ({CHAMPION: LATE, "light": LATE}, CHAMPION, "infeasible"),
        ({CHAMPION: LATE}, CHAMPION, "infeasible"),
        ({}, CHAMPION, None),
    ],
)
def test_the_first_rung_that_can_answer_in_time_gets_the_request(
    reported: dict[Lane, float], taken: Lane, reason: str | None
) -> None:
    gateway = Gateway()
    for lane, first_token_ms in reported.items():
        gateway.report(lane, first_token_ms)
    gateway.tried(*reported)
    assert outcome(gateway.ask()) == (taken, reason)


def test_a_light_model_in_time_only_for_known_conversations_gets_no_other() -> None:
    gateway = Gateway()
    gateway.report(CHAMPION, LATE)
    gateway.report("light", 3_000.0)
    gateway.tried(CHAMPION, "light")
    assert outcome(gateway.ask(session="known")) == ("light", None)
    gateway.report("light", 3_000.0, cold_ms=1_000.0)
    assert [outcome(gateway.ask(session=name))[1] for name in ("known", "new")] == [None, "infeasible"]


SIDES: list[Lane] = ["canary", "control"]
ROLLOUT = State(epoch=3, aliases={CHAMPION: "old", "canary": "new"})


def by_rule(where: Destination | Fallback) -> Destination:
    return (where if isinstance(where, Destination) else where.wanted).by_rule


@pytest.mark.parametrize("lane", SIDES)
@pytest.mark.parametrize(
    ("reported", "taken", "reason"),
    [
        ({CHAMPION: 100.0}, CHAMPION, None),
        ({CHAMPION: LATE, "light": 100.0}, "light", None),
        ({CHAMPION: LATE}, CHAMPION, "infeasible"),
    ],
)
def test_what_a_rollouts_lane_has_no_time_for_goes_the_champions_way(
    lane: Lane, reported: dict[Lane, float], taken: Lane, reason: str | None
) -> None:
    """It is known afterwards whose question it was, also if the fallback answers it."""
    gateway = Gateway(state=ROLLOUT)
    gateway.report(lane, LATE)
    for other, first_token_ms in reported.items():
        gateway.report(other, first_token_ms)
    gateway.tried(*reported)
    where = gateway.ask(lane)
    assert outcome(where) == (taken, reason)
    assert (by_rule(where).lane, where != by_rule(where)) == (lane, True)
    if isinstance(where, Destination):
        assert where.revision == ROLLOUT.revision(taken)


@pytest.mark.parametrize("lane", SIDES)
def test_a_rollouts_lane_keeps_its_question_if_no_other_lane_may_answer_in_time(lane: Lane) -> None:
    """Without a live worker of the ladder its own prediction is tested, as in every lane."""
    gateway = Gateway(state=ROLLOUT)
    gateway.report(lane, LATE)
    assert outcome(gateway.ask(lane)) == (lane, None)
    assert gateway.ask(lane) == Fallback("infeasible", Destination(lane))


@pytest.mark.parametrize("lane", SIDES)
@pytest.mark.parametrize("running", [0, 1])
def test_only_an_idle_worker_of_a_rollout_is_tested_against_its_prediction(lane: Lane, running: int) -> None:
    """A busy worker has no time; an idle one that predicts a late answer is too slow, or predicts wrongly."""
    gateway = Gateway(state=ROLLOUT)
    gateway.report(CHAMPION, 100.0)
    gateway.report(lane, LATE, running=running)
    tested = [outcome(gateway.ask(lane))[0] for _ in range(3)]
    assert tested == [CHAMPION if running else lane, CHAMPION, CHAMPION]


@pytest.mark.parametrize("lane", SIDES)
def test_a_rollouts_lane_is_not_asked_for_what_would_be_a_little_late(lane: Lane) -> None:
    """No lane answers in place of the champion's, so that is asked."""
    gateway = Gateway(state=ROLLOUT)
    gateway.report(CHAMPION, SOFT_MS * 1.1)
    gateway.report(lane, SOFT_MS * 1.1)
    assert outcome(gateway.ask(lane)) == (CHAMPION, None)


@pytest.mark.parametrize("lane", SIDES)
def test_a_diverted_conversation_is_cold_at_the_champion(lane: Lane) -> None:
    gateway = Gateway(state=ROLLOUT)
    gateway.report(CHAMPION, SOFT_MS, cold_ms=LATE)
    gateway.report(lane, LATE)
    gateway.tried(CHAMPION)
    assert outcome(gateway.ask(CHAMPION)) == (CHAMPION, None)
    assert outcome(gateway.ask(lane)) == (CHAMPION, "infeasible")


def test_a_tenant_with_too_much_of_a_rollouts_lane_gets_the_champions_share() -> None:
    """Without the rollout the champion's share would be the only one."""
    gateway = Gateway(state=ROLLOUT)
    for lane in (CHAMPION, "canary"):
        gateway.report(lane, 100.0)
    for number in range(8):
        gateway.admissions.of("canary").decide(
            f"other{number}", "other", "short", Deadline.after(NOW, first_token_ms=SOFT_MS, whole_ms=15_000),
            partition=0, received_unix_ms=NOW, now_unix_ms=NOW,
        )  # fmt: skip
    asked = [gateway.ask("canary") for _ in range(40)]
    assert {outcome(where)[1] for where in asked[:20]} == {None}
    assert {where.lane for where in asked if isinstance(where, Destination)} == {"canary", CHAMPION}


@pytest.mark.parametrize(
    ("hold", "taken", "reason"),
    [
        ("champion", CHAMPION, "infeasible"),
        ("light", "light", None),
        ("cpu", CHAMPION, "held"),  # which has no worker
        ("faq", CHAMPION, "held"),
    ],
)
def test_on_a_held_ladder_that_rung_answers_or_the_faq(hold: Rung, taken: Lane, reason: str | None) -> None:
    gateway = Gateway()
    gateway.report(CHAMPION, LATE)
    gateway.report("light", 100.0)
    gateway.tried(CHAMPION)
    gateway.state = State(rung=hold)
    assert outcome(gateway.ask()) == (taken, reason)


def test_a_champion_without_places_brings_the_level_down_and_one_with_places_up_again() -> None:
    gateway = Gateway()
    levels: list[str] = []
    for second in range(300):
        now = NOW + second * 1_000
        gateway.report(CHAMPION, LATE if second < 20 else 100.0, now=now)
        gateway.report("light", 100.0, now=now)
        gateway.ask(now=now)
        gateway.ask(now=now)
        levels.append(gateway.ladder.level)
    fell, rose = levels.index("light"), len(levels) - levels[::-1].index("light")
    assert fell <= 5
    assert rose >= 20 + 114  # nineteen in twenty of two minutes' requests had a place
    assert levels[-1] == CHAMPION


def test_a_destination_names_the_worker_that_reads_its_partition() -> None:
    """All that one worker runs when it hangs is one event for a rollout."""
    gateway = Gateway()
    assert by_rule(gateway.ask("canary")).worker_id == ""
    gateway.admissions.observe(builders.report("pod-3", lane="canary", partitions=[0]), NOW)
    assert by_rule(gateway.ask("canary")).worker_id == "pod-3"
