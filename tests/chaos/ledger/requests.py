"""Every request of a load, and all that its client received for it: pure. Times are seconds of one monotonic clock.

The clients report what they send and receive; nothing is discarded, so `judge` (tests/chaos/ledger/verdict.py) finds
missing, duplicate and misdirected answers. A session here is the state of its sockets: it is absent from `lost` to
`opened`.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, assert_never

from shared.wire.messages import ErrorEvent, ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import Response

_OWN_FAULT: Final = "internal"
_OF_CANCELS: Final = "unknown_response"
AnswerEvent = ResponseCreated | ResponseDelta | ResponseDone | ErrorEvent


class Breach(Enum):
    """What must not happen, in the words of the table."""

    LOST = "accepted, and no terminal event"
    UNHEARD = "asked, and neither accepted nor refused"
    TWICE = "heard of after its terminal event"
    TWO_RESPONSES = "two responses to one event"
    ORDER = "a delta out of its order"
    TEXT = "text differs from that of its deltas"
    WRONG_TEXT = "not the right text"
    FOREIGN = "of another session"
    FAULT = "refused for a fault of the gateway's own"
    LATE = "terminal event too late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`deadline_ms` runs from the first time it is asked. `session` is one tab's; tabs of one `conversation` differ in
    the part after `~`. `temperature` above 0: the seed follows from the response's id."""

    event_id: str
    session: str
    text: str
    max_output_tokens: int
    first_token_ms: int
    deadline_ms: int
    temperature: float = 0.0


def conversation_of(session: str) -> str:
    """Return the name of the conversation that a tab is open on."""
    return session.partition("~")[0]


@dataclass(frozen=True, slots=True)
class Line:
    """Of a story: something that happened."""

    at_s: float
    what: str


@dataclass(slots=True, kw_only=True)
class Page:
    """One request, and each of its `response_ids`. `deltas` are those of the last transmission; a client that
    reconnects may receive the answer again, and `abandoned` holds the text of each earlier transmission. `ends` holds
    every terminal event and its time, and `refused` a refusal until an answer follows it. `grown_s`: when its text grew
    beyond the `most_shown` characters that its client had received before. `crossing`: it was asked again on the same
    socket before its end was received, so the whole answer may be sent once more; `told_again`: it is being sent again.
    """

    question: Question
    asked_s: float
    response_id: str | None = None
    response_ids: list[str] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    asked_again: int = 0
    ends: list[tuple[float, Response]] = field(default_factory=list)
    refused: str | None = None
    breaches: list[tuple[Breach, str]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    may_begin: bool = True
    grown_s: list[float] = field(default_factory=list)
    most_shown: int = 0
    crossing: bool = False
    told_again: bool = False

    @property
    def running_s(self) -> list[float]:
        """Return when an answer that has begun grew, and when it ended."""
        return [*self.grown_s, *(at_s for at_s, _ in self.ends[:1])] if self.grown_s else []

    @property
    def told_anew(self) -> int:
        return len(self.abandoned)

    @property
    def accepted(self) -> bool:
        return self.response_id is not None

    @property
    def settled(self) -> bool:
        return bool(self.ends) or (self.refused is not None and not self.accepted)

    @property
    def due_s(self) -> float:
        return self.asked_s + self.question.deadline_ms / 1_000


@dataclass(frozen=True, slots=True)
class Absence:
    """A session had no socket; `until_s` is None while the absence lasts."""

    from_s: float
    until_s: float | None


class Ledger:
    """`versions`: more than one writes answers, or Redis may lose turns, so one that was begun may begin again in other
    words."""

    def __init__(self, *, versions: bool = False) -> None:
        self._versions = versions
        self.pages: dict[str, Page] = {}
        self.strays: list[Line] = []
        self.absences: dict[str, list[Absence]] = defaultdict(list)
        self.stalls: list[tuple[float, float]] = []  # periods in which the clients' loop was blocked
        self.session_lines: dict[str, list[Line]] = defaultdict(list)
        self.recovered = self.not_recovered = self.farewells = 0
        self._by_session: dict[str, list[Page]] = defaultdict(list)
        self._by_response: dict[str, Page] = {}

    @property
    def num_open(self) -> int:
        """Requests that are neither answered nor refused."""
        return sum(not page.settled for page in self.pages.values())

    def page_of(self, response_id: str) -> Page | None:
        """Return the request that has this response; None if no client was sent it."""
        return self._by_response.get(response_id)

    # --- what a client sends

    def asked(self, question: Question, now_s: float) -> None:
        page = Page(question=question, asked_s=now_s)
        self.pages[question.event_id] = page
        self._by_session[question.session].append(page)
        self._note(page, now_s, "asked")

    def asked_again(self, event_id: str, now_s: float) -> None:
        """On another socket, or after a refusal that passes."""
        page = self.pages[event_id]
        page.asked_again += 1
        page.may_begin = True
        page.crossing = not page.ends
        page.refused = None
        self._note(page, now_s, "asked again")

    def lost(self, session: str, now_s: float, why: str) -> None:
        """Its socket is closed or unusable."""
        absences = self.absences[session]
        if not absences or absences[-1].until_s is not None:
            absences.append(Absence(now_s, None))
        self.session_lines[session].append(Line(now_s, f"socket lost: {why}"))

    def dialled(self, session: str, now_s: float, where: str) -> None:
        """Later messages arrive over another socket, and may restart the answer."""
        for page in self._by_session[session]:
            page.may_begin = True
            page.crossing = page.told_again = False
        self.session_lines[session].append(Line(now_s, f"connects to {where}"))

    def opened(self, session: str, now_s: float, *, resumed: bool, recovered: bool, replayed: int) -> None:
        """`resumed`: a cursor was sent."""
        absences = self.absences[session]
        if absences and absences[-1].until_s is None:
            absences[-1] = Absence(absences[-1].from_s, now_s)
        if resumed:
            self.recovered += recovered
            self.not_recovered += not recovered
        said = f"recovered={recovered} replayed={replayed}" if resumed else "without a cursor"
        self.session_lines[session].append(Line(now_s, f"session open, {said}"))

    # --- what a client receives

    def told_to_go(self, session: str, now_s: float, reason: str) -> None:
        """Its gateway has announced that it closes."""
        self.farewells += 1
        self.session_lines[session].append(Line(now_s, f"the gateway closes: {reason}"))

    def heard(self, session: str, message: AnswerEvent, now_s: float) -> None:
        match message:
            case ResponseCreated():
                self._created(session, message, now_s)
            case ResponseDelta():
                page = self._page(session, message.response_id, now_s, f"delta {message.seq}")
                if page is not None:
                    self._delta(page, message, now_s)
            case ResponseDone():
                page = self._page(session, message.response.id, now_s, "done")
                if page is not None:
                    self._done(page, message, now_s)
            case ErrorEvent():
                self._error(session, message, now_s)
            case _:
                assert_never(message)

    def _created(self, session: str, message: ResponseCreated, now_s: float) -> None:
        page = self.pages.get(message.event_id)
        if page is None or page.question.session != session:
            self._stray(page, now_s, session, f"created for {message.event_id!r}")
            return
        self._note(page, now_s, f"created {message.response_id}")
        if page.response_id is not None and page.response_id != message.response_id:
            self._breach(page, Breach.TWO_RESPONSES, f"{page.response_id} and {message.response_id}")
        crossed, page.crossing = page.crossing, False
        if page.ends and crossed:
            page.told_again = True
            return
        if page.ends:
            self._breach(page, Breach.TWICE, "response.created")
            return
        if not page.may_begin and not (self._versions and page.deltas):
            self._breach(page, Breach.ORDER, "told from its beginning a second time on one socket")
        if page.deltas:
            page.abandoned.append("".join(page.deltas))
            page.deltas.clear()
        page.may_begin = False
        page.refused = None
        page.response_id = message.response_id
        if message.response_id not in page.response_ids:
            page.response_ids.append(message.response_id)
        self._by_response[message.response_id] = page

    def _delta(self, page: Page, message: ResponseDelta, now_s: float) -> None:
        self._note(page, now_s, f"delta {message.seq} at {message.offset}, {len(message.delta)} characters")
        if page.ends:
            if not page.told_again:
                self._breach(page, Breach.TWICE, f"delta {message.seq}")
            return
        want = (len(page.deltas), sum(map(len, page.deltas)))
        if (message.seq, message.offset) != want:
            self._breach(page, Breach.ORDER, f"(seq, offset) ({message.seq}, {message.offset}) where {want} was due")
        page.deltas.append(message.delta)
        num_shown = sum(map(len, page.deltas))
        if num_shown > page.most_shown:
            page.most_shown = num_shown
            page.grown_s.append(now_s)

    def _done(self, page: Page, message: ResponseDone, now_s: float) -> None:
        response = message.response
        self._note(page, now_s, f"done {response.status}/{response.reason} by {response.source}: {response.timings}")
        if page.ends and page.told_again and response.output_text == page.ends[0][1].output_text:
            page.told_again = False
            return
        if page.ends:
            self._breach(page, Breach.TWICE, "response.done")
        elif response.output_text != (told := "".join(page.deltas)):
            self._breach(page, Breach.TEXT, f"{response.output_text!r} and its deltas {told!r}")
        page.ends.append((now_s, response))

    def _error(self, session: str, message: ErrorEvent, now_s: float) -> None:
        said = f"error {message.error.code}: {message.error.message}"
        if message.event_id is None:
            self.session_lines[session].append(Line(now_s, said))
            return
        page = self.pages.get(message.event_id)
        if page is None or page.question.session != session:
            self._stray(page, now_s, session, said)
            return
        self._note(page, now_s, said)
        if page.ends:
            # The answer to a cancel that was sent before the end arrived: an erasure had removed the answer.
            if message.error.code != _OF_CANCELS:
                self._breach(page, Breach.TWICE, said)
            return
        page.refused = message.error.code
        if message.error.code == _OWN_FAULT:
            self._breach(page, Breach.FAULT, said)

    # --- bookkeeping

    def _page(self, session: str, response_id: str, now_s: float, what: str) -> Page | None:
        """Return the request to which the event belongs, or None if it is another session's."""
        page = self._by_response.get(response_id)
        if page is None or page.question.session != session:
            self._stray(page, now_s, session, f"{what} of {response_id}")
            return None
        return page

    def _stray(self, page: Page | None, now_s: float, session: str, what: str) -> None:
        line = Line(now_s, f"session {session} heard {what}, which is not its own")
        if page is None:
            self.strays.append(line)
        else:
            page.lines.append(line)
            self._breach(page, Breach.FOREIGN, line.what)

    @staticmethod
    def _note(page: Page, now_s: float, what: str) -> None:
        page.lines.append(Line(now_s, what))

    @staticmethod
    def _breach(page: Page, breach: Breach, what: str) -> None:
        page.breaches.append((breach, what))
