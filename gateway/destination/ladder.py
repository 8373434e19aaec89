"""Choose the rungs that a request is offered to, in order: champion, light model, CPU model, FAQ. Pure.

The ladder has a level, the rung that requests begin on. A request that its rung cannot answer in time goes down one
rung at a time. If no lower rung can answer it, a rung above the level may, and otherwise the FAQ answers. The level
falls within seconds when its rung cannot serve most requests. It rises only after minutes in which the rung above could
have served nearly all: a conversation should not change models with every question.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.versions.state import Rung
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.session_key import SessionKey

# A lane of the ladder: every rung except the FAQ, which is the lowest.
Step = Literal["champion", "light", "cpu"]
STEPS: Final[tuple[Step, ...]] = ("champion", "light", "cpu")
RUNGS: Final[tuple[Rung, ...]] = (*STEPS, "faq")
_MOST_SEATS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPolicy:
    """When the level moves. It falls if its rung could not serve more than `full_share` of the requests within
    `fall_ms`. It rises if the rung above could have served `free_share` of them within `rise_ms`. Both need at least
    `fewest` requests."""

    fewest: int = 5
    fall_ms: float = 2_000.0
    rise_ms: float = 120_000.0
    full_share: float = 0.5
    free_share: float = 0.95


@dataclass(slots=True)
class _Window:
    """Requests since the first one of the window, and how many of them the rung could serve."""

    start_unix_ms: float | None = None
    asked: int = 0
    had_place: int = 0

    def is_over(self, length_ms: float, fewest: int, now_unix_ms: float) -> bool:
        if self.start_unix_ms is None or self.asked < fewest:
            return False
        return now_unix_ms - self.start_unix_ms >= length_ms

    def count(self, has_place: bool, now_unix_ms: float) -> None:
        if self.start_unix_ms is None:
            self.start_unix_ms = now_unix_ms
        self.asked += 1
        self.had_place += has_place


@dataclass(slots=True)
class Ladder:
    """The ladder of one gateway. For each request call `offers`, then `record_outcome`.

    Attributes:
        hold: the rung that an operator fixed: requests are answered there, or by the FAQ
        seats: the lane that gave a conversation's last answer, unless that is the champion's
    """

    policy: LadderPolicy = field(default_factory=LadderPolicy)
    level: Step = CHAMPION
    hold: Rung | None = None
    _own: _Window = field(default_factory=_Window)
    _above: _Window = field(default_factory=_Window)
    _noted_unix_ms: float = 0.0
    seats: OrderedDict[SessionKey, Step] = field(default_factory=OrderedDict)

    @property
    def rung(self) -> Rung:
        """Return the rung that requests begin on."""
        return self.hold or self.level

    def offers(self, live: Collection[Lane]) -> list[Step]:
        """Return the lanes to offer a request to, in order: from the level down, then from the level up. The FAQ
        answers if none accepts it.

        `live` are the lanes with a worker that serves the request's bucket. If it is empty, the champion is returned:
        its topic keeps the request for a worker that may start.
        """
        if self.hold is not None:
            return [lane for lane in STEPS if lane == self.hold and (lane in live or lane == CHAMPION)]
        at = STEPS.index(self.level)
        order = (*STEPS[at:], *reversed(STEPS[:at]))
        return [lane for lane in order if lane in live] or [CHAMPION]

    def below(self, lane: Lane, live: Collection[Lane]) -> list[Step]:
        """Return the lanes to offer a request to after a lane's workers gave it up; empty if an operator fixed the
        rung."""
        if self.hold is not None or lane not in STEPS:
            return []
        return [step for step in STEPS[STEPS.index(lane) + 1 :] if step in live]

    def record_outcome(
        self,
        session: SessionKey,
        taken: Step | None,
        live: Collection[Lane],
        *,
        has_place: Callable[[Step], bool] | None,
        now_unix_ms: float,
    ) -> None:
        """Record the result of one request.

        Args:
            session: the conversation
            taken: the lane that accepted the request; None for the FAQ
            live: the lanes with a worker that serves the request's bucket
            has_place: returns whether a lane could have answered in time; None if the request may not move the level,
                because its client asked for less time than the promise
            now_unix_ms: the current time
        """
        self.seat(session, taken)
        if has_place is None:
            return
        self._noted_unix_ms = now_unix_ms
        if self.hold is not None:
            return
        own, over, policy = self._own, self._above, self.policy
        at = STEPS.index(self.level)
        below = [lane for lane in STEPS[at + 1 :] if lane in live]
        above = next((lane for lane in reversed(STEPS[:at]) if lane in live), None)
        own.count(taken == self.level, now_unix_ms)
        over.count(above is not None and has_place(above), now_unix_ms)
        if own.is_over(policy.fall_ms, policy.fewest, now_unix_ms):
            self._own = _Window()
            if below and own.asked - own.had_place > policy.full_share * own.asked:
                self._move(below[0])
                return
        if over.is_over(policy.rise_ms, policy.fewest, now_unix_ms):
            self._above = _Window()
            if above is not None and over.had_place >= policy.free_share * over.asked:
                self._move(above)

    def note_given_up(self, session: SessionKey, lane: Lane, taken: Step | None, *, counts: bool = True) -> None:
        """Record that a lane's workers gave up a request that they had accepted, and which lane got it then. It moves
        the level only if it `counts`."""
        self.seat(session, taken)
        if counts and lane == self.level:
            self._own.had_place = max(0, self._own.had_place - 1)

    def rest(self, now_unix_ms: float) -> None:
        """Rise one rung if no request was recorded for as long as a rise takes."""
        if self.level != CHAMPION and now_unix_ms - self._noted_unix_ms >= self.policy.rise_ms:
            self._noted_unix_ms = now_unix_ms
            self._move(STEPS[STEPS.index(self.level) - 1])

    def _move(self, level: Step) -> None:
        self.level = level
        self._own, self._above = _Window(), _Window()

    def seat(self, session: SessionKey, taken: Step | None) -> None:
        """Record which lane gave a conversation's last answer."""
        if taken == CHAMPION:
            self.seats.pop(session, None)
        elif taken is not None:
            self.seats[session] = taken
            self.seats.move_to_end(session)
            if len(self.seats) > _MOST_SEATS:
                self.seats.popitem(last=False)
