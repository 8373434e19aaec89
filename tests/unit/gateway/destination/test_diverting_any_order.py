"""Under any reports a conversation keeps its side, and a rollout loses no question that the champion accepts."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.choose import View, below, by_rule, choose
from gateway.destination.destination import Destination, Fallback, Question
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from shared.versions.state import Rule, State
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.session_key import SessionKey
from tests.support.builders import gateway as builders
from tests.unit.examples import examples

NOW = 1_000_000.0
STATE = State(epoch=3, aliases={CHAMPION: "old", "canary": "new"}, rule=Rule(salt="a", share=0.5, control=True))
OWN: dict[Lane, str] = {CHAMPION: "old", "canary": "new", "control": "old", "light": "small"}

REPORT = st.tuples(
    st.sampled_from(list(OWN)), st.sampled_from([0.0, 2_900.0, 3_300.0, 60_000.0]), st.sampled_from([0, 8])
)
ASK = st.tuples(st.integers(0, 5), st.booleans())
LATER = st.sampled_from([10.0, 100.0, 1_100.0, 3_100.0])


class Fleet:
    """Workers of each lane, behind one gateway in the middle of a rollout."""

    def __init__(self) -> None:
        self.admissions, self.ladder, self.now = LaneAdmissions(AdmissionPolicy()), Ladder(), NOW
        for lane in OWN:
            self.report(lane, 60_000.0 if lane in ("canary", "control") else 0.0, 8)

    def report(self, lane: Lane, first_token_ms: float, running: int) -> None:
        loaded: dict[str, Any] = {
            "lane": lane,
            "revisions": (OWN[lane],),
            "slots": 8,
            "running": running,
            "service_ms": 1.0,
        }
        self.admissions.observe(builders.report(lane, first_token_ms=first_token_ms, **loaded), self.now)

    def ask(self, number: int, visitor: int, *, gives_up: bool) -> None:
        """Ask, and have the workers give it up where `gives_up`."""
        view = View(
            now_unix_ms=self.now,
            state=STATE,
            admissions=self.admissions,
            ladder=self.ladder,
            partition_of=lambda *_: 0,
        )
        question = Question(
            response_id=f"r{number}",
            session=SessionKey("demo", f"visitor-{visitor}"),
            deadline=Deadline.after(self.now, first_token_ms=3_000, whole_ms=15_000),
            received_unix_ms=self.now,
        )
        wanted = by_rule(question.session, "short", view)
        assert wanted.lane in {STATE.lane(question.session), CHAMPION}
        if wanted.lane == CHAMPION:
            return
        champion = self.admissions.of(CHAMPION)
        accepts = view.is_live(CHAMPION, "short") and champion.has_place(
            "short", question.deadline, partition=0, now_unix_ms=self.now
        )
        where = choose(question, wanted, view)
        to = where if isinstance(where, Destination) else where.wanted
        assert to.by_rule == wanted or to.lane == wanted.lane
        assert to.lane in {wanted.lane, CHAMPION, "light"}
        assert to.revision == STATE.revision(to.lane)
        assert not (isinstance(where, Fallback) and accepts and where.reason != "share")
        if isinstance(where, Destination) and gives_up and (again := below(question, where, view)) is not None:
            assert again.by_rule.lane == wanted.lane
            assert again.lane in {CHAMPION, "light"}
            assert again.given_up == (where.lane == wanted.lane)


@settings(max_examples=examples(200))
@given(st.lists(st.one_of(REPORT, ASK, LATER), min_size=5, max_size=60))
def test_a_rollout_takes_no_question_from_its_side_or_from_the_champion(acts: list[Any]) -> None:
    fleet = Fleet()
    for number, act in enumerate(acts):
        match act:
            case (lane, first_token_ms, running):
                fleet.report(lane, first_token_ms, running)
            case (visitor, gives_up):
                fleet.ask(number, visitor, gives_up=gives_up)
            case later:
                fleet.now += later
                fleet.admissions.expire(fleet.now)
