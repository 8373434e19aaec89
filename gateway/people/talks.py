"""Who answers in each conversation that people were asked into, and what was said there, by `chat.people`. Pure.

Every gateway applies the same records in the same order, so all agree: of two moves of one epoch the first counts, a
message counts once, and its number is its place in the log.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.conversation.erasures import Erasures
from shared.conversation.turn import BY_PERSON, Turn
from shared.wire.messages import Erase, Language, PeopleMove, PeopleRecord, PeopleSaid, TalkState
from shared.wire.outcome import Timings, Usage
from shared.wire.session_key import SessionKey
from shared.wire.topics import PEOPLE_MS

MAX_TALKS: Final = 20_000
MAX_CHARS: Final = 20_000_000
MAX_MESSAGES: Final = 2_000
"""Of one conversation, as is the next; the oldest are dropped."""
MAX_TALK_CHARS: Final = 400_000
MAX_WAITING_SHOWN: Final = 200
_LAST_TURNS: Final = 20
TURN_CHARS: Final = 4_000
"""So many of the last characters a turn keeps of each side: workers compare the facts of later answers with them."""
_NEXT: Final[dict[TalkState, frozenset[TalkState]]] = {
    "bot": frozenset({"waiting"}),
    "resolved": frozenset({"waiting"}),
    "waiting": frozenset({"taken", "bot", "resolved"}),
    "taken": frozenset({"taken", "waiting", "bot", "resolved"}),
}


@dataclass(frozen=True, slots=True)
class Message:
    """Words that count. `n` is their number in the conversation."""

    n: int
    message_id: str
    by: Literal["customer", "agent"]
    name: str
    text: str
    unix_ms: int


@dataclass(slots=True, kw_only=True)
class Talk:
    """One conversation.

    Attributes:
        agent, name: the person who has the conversation, or had it last.
        mover: who made the last move; empty for a gateway.
        reason, language: of the hand-off.
        since_unix_ms: when the last move was written; `asked_unix_ms`, when the customer last asked for a person.
        in_history: how many of `said` are in the history.
    """

    session: SessionKey
    state: TalkState
    epoch: int
    generation: int
    agent: str = ""
    name: str = ""
    mover: str = ""
    reason: str = ""
    language: Language = "en"
    since_unix_ms: int = 0
    asked_unix_ms: int = 0
    said: list[Message] = field(default_factory=list)
    in_history: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    num_chars: int = 0

    def may_move(self, to: TalkState, agent: str) -> bool:
        """Return whether that person, or a gateway (""), may move it there."""
        is_holders = self.state != "taken" or to == "taken" or agent in {"", self.agent}
        return to in _NEXT[self.state] and is_holders and (to != "taken" or bool(agent))

    def find(self, message_id: str) -> Message | None:
        number = self.numbers.get(message_id)
        return next((each for each in reversed(self.said) if each.n == number), None)

    def is_unanswered_since(self, unix_ms: float) -> bool:
        """Return whether the person who has it wrote nothing since that time, although the customer waits."""
        replies = [each.unix_ms for each in self.said if each.by == "agent" and each.unix_ms >= self.since_unix_ms]
        if not replies:
            return self.since_unix_ms <= unix_ms
        asked = (each.unix_ms for each in self.said if each.by == "customer" and each.unix_ms > replies[-1])
        return next(asked, math.inf) <= unix_ms

    def heard_after(self, n: int) -> list[Message]:
        """Return the person's messages behind number `n`."""
        return [each for each in self.said if each.n > n and each.by == "agent"]


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that counts. `turns` are the words of a person who has given the conversation back, for its history."""

    talk: Talk
    before: TalkState | None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that counts."""

    talk: Talk
    message: Message


class Talks:
    """The conversations of the last day, as many as fit; those that no person has are dropped first.

    Attributes:
        taken: the conversations that a person has.
        position: the log's next offset. Numbers are offsets plus one.
        changed: the number of each tenant's last change.
    """

    def __init__(self, max_talks: int = MAX_TALKS, max_chars: int = MAX_CHARS) -> None:
        self.taken: dict[SessionKey, Talk] = {}
        self.position = 0
        self.changed: dict[str, int] = {}
        self._max_talks, self._max_chars = max_talks, max_chars
        self._talks: OrderedDict[SessionKey, Talk] = OrderedDict()
        self._open: dict[str, dict[SessionKey, Talk]] = {}
        self._num_chars = 0
        self._erased = Erasures()

    def __len__(self) -> int:
        return len(self._talks)

    def find(self, session: SessionKey) -> Talk | None:
        return self._talks.get(session)

    def of_tenant(self, tenant: str) -> list[Talk]:
        """Return the tenant's conversations that wait, at most those that wait longest, and all that are taken."""
        found = sorted(self._open.get(tenant, {}).values(), key=lambda talk: talk.asked_unix_ms)
        waiting = [talk for talk in found if talk.state == "waiting"]
        return waiting[:MAX_WAITING_SHOWN] + [talk for talk in found if talk.state == "taken"]

    def apply(self, record: PeopleRecord, offset: int, unix_ms: int) -> Moved | Heard | None:
        """Apply a record written at `unix_ms`. Return what it changes; None if it does not count."""
        self.position = max(self.position, offset + 1)
        self.drop_old(unix_ms)
        session = SessionKey(record.tenant, record.session_id)
        if isinstance(record, Erase):
            self.forget(session, record.generation, unix_ms)
            return None
        if record.generation < self._erased.last(session):
            return None
        changed = (
            self._move(session, record, unix_ms)
            if isinstance(record, PeopleMove)
            else self._say(session, record, offset, unix_ms)
        )
        if changed is not None:
            self.changed[record.tenant] = offset + 1
            self._talks.move_to_end(session)
            self._drop_excess()
        return changed

    def _move(self, session: SessionKey, move: PeopleMove, unix_ms: int) -> Moved | None:
        talk = self._talks.get(session)
        if talk is not None and talk.generation < move.generation and move.epoch <= talk.epoch:
            # its author knows of an erasure, whose record comes later
            self._drop(session)
            talk = None
        if talk is None:
            if move.to == "taken" and not move.agent:
                return None
            talk = Talk(session=session, state=move.to, epoch=0, generation=move.generation)
            before = None
        else:
            before = talk.state
            if move.epoch <= talk.epoch or not talk.may_move(move.to, move.agent):
                return None
        self._talks[session] = talk
        talk.state, talk.epoch, talk.mover, talk.since_unix_ms = move.to, move.epoch, move.agent, unix_ms
        talk.generation = max(talk.generation, move.generation)
        if move.to == "waiting":
            talk.reason, talk.language = move.reason or talk.reason, move.language
            talk.asked_unix_ms = talk.asked_unix_ms if before == "taken" else unix_ms
        if move.to == "taken":
            talk.agent, talk.name = move.agent, move.name
            self.taken[session] = talk
        else:
            self.taken.pop(session, None)
        if move.to in _OPEN:
            self._open.setdefault(session.tenant, {})[session] = talk
        else:
            self._close(session)
        if move.to == "taken":
            return Moved(talk, before)
        return Moved(talk, before, _new_turns(talk) if before == "taken" else ())

    def _say(self, session: SessionKey, said: PeopleSaid, offset: int, unix_ms: int) -> Heard | None:
        talk = self.taken.get(session)
        if talk is None or said.message_id in talk.numbers:
            return None
        if said.by == "agent" and (said.agent, said.epoch) != (talk.agent, talk.epoch):
            return None
        name = talk.name if said.by == "agent" else ""
        message = Message(offset + 1, said.message_id, said.by, name, said.text, unix_ms)
        talk.said.append(message)
        talk.numbers[said.message_id] = message.n
        talk.num_chars += len(message.text)
        self._num_chars += len(message.text)
        while len(talk.said) > MAX_MESSAGES or (talk.num_chars > MAX_TALK_CHARS and len(talk.said) > 1):
            first = talk.said.pop(0)
            talk.num_chars -= len(first.text)
            self._num_chars -= len(first.text)
            del talk.numbers[first.message_id]
            talk.in_history = max(0, talk.in_history - 1)
        return Heard(talk, message)

    def forget(self, session: SessionKey, generation: int, unix_ms: float) -> None:
        """Drop the words of a conversation's earlier generations, and ignore records of them."""
        self._erased.add(session, generation, unix_ms)
        talk = self._talks.get(session)
        if talk is not None and talk.generation < generation:
            self._drop(session)

    def _drop(self, session: SessionKey) -> None:
        self._num_chars -= self._talks.pop(session).num_chars
        self.changed[session.tenant] = self.position
        self.taken.pop(session, None)
        self._close(session)

    def _close(self, session: SessionKey) -> None:
        of_tenant = self._open.get(session.tenant, {})
        of_tenant.pop(session, None)
        if not of_tenant:
            self._open.pop(session.tenant, None)

    def drop_old(self, unix_ms: float) -> None:
        """Drop the conversations in which nothing was said for as long as the log keeps its records."""
        while self._talks:
            session, talk = next(iter(self._talks.items()))
            last = talk.said[-1].unix_ms if talk.said else 0
            if max(last, talk.since_unix_ms) > unix_ms - PEOPLE_MS:
                return
            self._drop(session)

    def _drop_excess(self) -> None:
        while len(self._talks) > max(1, self._max_talks) or (
            self._num_chars > self._max_chars and len(self._talks) > 1
        ):
            self._drop(next((each for each in self._talks if each not in self.taken), next(iter(self._talks))))


_OPEN: Final[frozenset[TalkState]] = frozenset({"waiting", "taken"})


def _new_turns(talk: Talk) -> tuple[Turn, ...]:
    """Return the words that are not in the history yet, as turns: what the customer said, and what the person answered.
    Words without an answer are kept for the next person."""
    new = talk.said[talk.in_history :]
    turns: list[Turn] = []
    asked: list[Message] = []
    answered: list[Message] = []
    for place, message in enumerate(new):
        (asked if message.by == "customer" else answered).append(message)
        is_last = place + 1 == len(new)
        if answered and (is_last or new[place + 1].by == "customer"):
            turns.append(_turn(talk, asked, answered))
            asked, answered = [], []
    talk.in_history = len(talk.said) - len(asked)
    return tuple(turns[-_LAST_TURNS:])


def _turn(talk: Talk, asked: list[Message], answered: list[Message]) -> Turn:
    first = (asked + answered)[0]
    return Turn(
        request_id=f"{BY_PERSON}{answered[-1].n}",
        user="\n".join(each.text for each in asked)[-TURN_CHARS:],
        output_text="\n".join(each.text for each in answered)[-TURN_CHARS:],
        source="handoff",
        usage=Usage(),
        timings=Timings(total_ms=0.0),
        asked_unix_ms=first.unix_ms,
        generation=talk.generation,
        origin="gateway",
    )
