"""Let people answer: what `chat.people` says is applied to this gateway's open answers and connections.

A move to `taken` ends the conversation's open answers in the same call that sends the client `person.state`, so no word
of the model or the FAQ follows it. A question is then published as the customer's words.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.access.charges import Caller
from gateway.destination.claim import Claims
from gateway.people.people import People
from gateway.people.people_log import PeopleLog
from gateway.people.talks import Heard, Message, Moved, Talk
from gateway.request import endings
from gateway.request.entry import Entry
from gateway.request.inflight import InflightTable
from gateway.request.resumption import learn_question
from gateway.serving.answering import Answering
from gateway.session.connection import Connection, Connections, write
from shared.conversation.history import History
from shared.conversation.journal import Journalled
from shared.conversation.turn import Turn
from shared.errors import ProtocolError, StoreUnavailable
from shared.kafka import Record
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.keyed_locks import KeyedLocks
from shared.process.tasks import Tasks
from shared.telemetry.logs import get_logger
from shared.wire.messages import PeopleRecord, PeopleSaid, PersonMessage, PersonState, ServerMessage, TalkState
from shared.wire.session_key import SessionKey
from shared.wire.topics import PEOPLE_MS

log = get_logger()

_LOAD_WITHIN_S: Final = 3.0
_LOOK_S: Final = 5.0
_LONGEST_MS: Final = PEOPLE_MS // 2
"""The longest time that a person has a conversation, since the log forgets the taking after a day."""
_AGAIN_S: Final = 1.0
_TRIES: Final = 60
_EPOCH: Final = "people"
"""Under this name Redis keeps the number of the last turn, so that of several gateways one writes it."""


@dataclass(slots=True, kw_only=True)
class Talking:
    """Owned by the gateway's event loop."""

    log: PeopleLog
    people: People
    inflight: InflightTable
    connections: Connections
    answering: Answering
    claims: Claims
    history: History
    beside: Tasks
    _locks: KeyedLocks = field(default_factory=KeyedLocks, init=False)
    _ahead_ms: float = field(default=math.inf, init=False)  # of the log's clock, at most

    # --- the log

    def apply(self, record: PeopleRecord, at: Record) -> None:
        """Apply a record of the log."""
        unix_ms = at.arrived_unix_ms or int(wire_unix_ms())
        self._ahead_ms = min(self._ahead_ms, wire_unix_ms() - unix_ms)
        changed = self.log.talks.apply(record, at.offset, unix_ms)
        self.log.applied()
        if isinstance(changed, Moved):
            self._remember(changed.talk.session, changed.turns)
        if not self.log.loaded.is_set():
            return
        if isinstance(changed, Moved):
            self._moved(changed)
        elif isinstance(changed, Heard) and changed.message.by == "agent":
            for connection in self.connections.of_session(changed.talk.session):
                write(connection, (_next(connection, changed.message),))

    def load(self) -> None:
        """Apply what was written before this gateway began to read, now that all of it has been read."""
        self.log.set_loaded()
        for session in list(self.log.talks.taken):
            self._end_answers(session)
        for session in self.connections.sessions():
            for connection in self.connections.of_session(session):
                self.reopen(connection)
                write(connection)

    def _moved(self, moved: Moved) -> None:
        talk = moved.talk
        if talk.state == "taken" and moved.before != "taken":
            self._end_answers(talk.session)
        self._tell(talk.session, _state(talk))
        if talk.state in {"bot", "resolved"}:
            self.beside.start(self.people.handoffs.close(talk.session, before_unix_ms=talk.since_unix_ms))

    def _end_answers(self, session: SessionKey) -> None:
        """End the open answers. Their questions go to the person, once, although several gateways may have them."""
        for entry in self.inflight.open_of(session):
            self.hand_over(entry)

    def hand_over(self, entry: Entry) -> None:
        """End an open answer; its question goes to the person."""
        self.answering.cancel(entry, "person")
        self.beside.start(self._publish_question(entry))

    async def _publish_question(self, entry: Entry) -> None:
        """Publish the question of an answer that was ended, until Kafka has it. That of an adopted answer is read
        first."""
        if not entry.input:
            learn_question(entry, await self.answering.recall.question(entry, now_unix_ms()))
        for _ in range(_TRIES if entry.input else 0):
            with suppress(ProtocolError):
                await self._say(entry, entry.request.session)
                return
            await asyncio.sleep(_AGAIN_S)

    def _tell(self, session: SessionKey, message: ServerMessage) -> None:
        for connection in self.connections.of_session(session):
            write(connection, (message,))

    def _remember(self, session: SessionKey, turns: Sequence[Turn]) -> None:
        """Write a person's words to the history. Every gateway tries to, and one does."""
        if turns:
            self.claims.note_turn(session, turns[-1].request_id, turns[-1].generation)
            self.beside.start(self._write(session, turns))

    async def _write(self, session: SessionKey, turns: Sequence[Turn]) -> None:
        for turn in turns:
            number = int(turn.request_id.rpartition("_")[2])
            entry = Journalled(session_id=session.session_id, turn=turn, epoch=_EPOCH, sequence=number)
            try:
                await self.history.take(session, turn, entry)
            except StoreUnavailable:
                self.history.remember(session, turn)  # it is written when Redis is back

    # --- a client returns

    async def until_read(self, talk: int) -> None:
        """Wait, for a while, until it is known which conversations people have, and this gateway has read as far as the
        one that the client comes from."""
        log = self.log
        await log.wait(lambda: log.loaded.is_set() and log.talks.position >= talk, _LOAD_WITHIN_S)

    def reopen(self, connection: Connection) -> None:
        """Send a client who answers in its conversation, and the person's messages that it lacks."""
        session, talks = connection.session, self.log.talks
        talk = talks.find(session.key)
        if session.talk is None or talk is None:
            return
        has = session.talk if session.talk <= talks.position else 0  # that number is of a log before this one
        for message in talk.heard_after(has):
            connection.put(_next(connection, message))
        connection.put(_state(talk))

    # --- a customer asks

    async def ask(self, entry: Entry, caller: Caller) -> bool:
        """Send a question to the person who has the conversation, and end its answer without text.

        Returns:
            Whether a person gets it; False if the conversation was given back in the meantime, and the model answers.
        """
        try:
            async with self._locks.hold(entry.request.session):
                await self.people.quotas.charge_shared("ask", caller)
                is_heard = await self._say(entry, entry.request.session)
        except ProtocolError as error:
            self.answering.refuse(entry, error)
            return True
        if entry.answer.done or not is_heard:
            return entry.answer.done
        now = now_unix_ms()
        entry.answer.admit(now)
        self.answering.end(entry, endings.hand_over(entry, now))
        return True

    async def _say(self, entry: Entry, session: SessionKey) -> bool:
        """Publish a question as the customer's words; return whether they count. Raises `ProtocolError`."""
        said = PeopleSaid(
            tenant=session.tenant,
            session_id=session.session_id,
            message_id=entry.response_id,
            by="customer",
            text=entry.input,
            generation=entry.request.generation,
        )
        await self.log.publish(said)
        talk = self.log.talks.find(session)
        return talk is not None and said.message_id in talk.numbers

    # --- a person answers

    async def say(self, session: SessionKey, message_id: str, agent: str, text: str) -> int:
        """Publish a person's message and return its number. A repeated message is sent once. Raises `ProtocolError`."""
        talk = self._taken_by(session, agent, message_id)
        if talk.find(message_id) is None:
            said = PeopleSaid(
                tenant=session.tenant,
                session_id=session.session_id,
                message_id=message_id,
                by="agent",
                text=text,
                epoch=talk.epoch,
                agent=agent,
                generation=talk.generation,
            )
            await self.log.publish(said)
            talk = self._taken_by(session, agent, message_id)
        message = talk.find(message_id)
        if message is None:
            raise _not_yours(talk)
        if (message.by, message.text) != ("agent", text):
            why = f"another message has the id {message_id!r}; send this one with an id that is new"
            raise ProtocolError("key_reused", why, param="message_id")
        return message.n

    async def move(self, talk: Talk, to: TalkState, *, epoch: int | None, agent: str, name: str) -> Talk:
        """Move a conversation for a person: take it, or give it back. Raises `ProtocolError`."""
        if talk.state == "taken" and to == "taken" and talk.agent == agent:
            return talk
        if talk.state == "taken" and to != "taken" and talk.agent != agent:
            raise _not_yours(talk)
        moved = await self.log.move(talk.session, to, epoch=epoch, agent=agent, name=name)
        if moved is None:
            raise unknown_talk(talk.session.session_id)
        return moved

    async def watch(self) -> None:
        """Let a conversation wait again if the person who has it leaves the customer without a reply for long."""
        while True:
            await asyncio.sleep(_LOOK_S)
            talks = self.log.talks
            talks.drop_old(wire_unix_ms())
            now = wire_unix_ms() - self._ahead_ms  # by the clock that the moves have
            latest = now - self.people.settings.silent_s * 1_000
            taken = list(talks.taken.values()) if self.log.loaded.is_set() else []  # else a reply may not be read yet
            for talk in taken:
                if talk.is_unanswered_since(latest) or talk.since_unix_ms <= now - _LONGEST_MS:
                    with suppress(ProtocolError):  # another gateway was first, or the next look tries again
                        await self.log.move(talk.session, "waiting", epoch=talk.epoch, reason="silent")

    def _taken_by(self, session: SessionKey, agent: str, message_id: str) -> Talk:
        """Return a conversation to which this person may write, or has written this. Raises `ProtocolError`."""
        talk = self.log.talks.find(session)
        if talk is None:
            raise unknown_talk(session.session_id)
        if message_id not in talk.numbers and (talk.state != "taken" or talk.agent != agent):
            raise _not_yours(talk)
        return talk


def unknown_talk(session_id: str) -> ProtocolError:
    """Return the error for a conversation for which no person was asked, or that was erased."""
    return ProtocolError(
        "conversation_not_found",
        f"no conversation {session_id!r} waits for a person, or it was erased",
        param="session_id",
    )


def _not_yours(talk: Talk) -> ProtocolError:
    who = f"{talk.name} has" if talk.state == "taken" else "nobody has"
    return ProtocolError("not_taken", f"{who} this conversation; take it before you write", param="session_id")


def _state(talk: Talk) -> PersonState:
    return PersonState(state=talk.state, name=talk.name or None)


def _next(connection: Connection, message: Message) -> PersonMessage:
    """Return a message to be sent to a client, and note that the client has it."""
    connection.session.talk = message.n
    return PersonMessage(
        message_id=message.message_id, n=message.n, name=message.name, text=message.text, at=message.unix_ms
    )
