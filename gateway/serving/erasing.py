"""Erase conversations from every store except Kafka, whose copies expire with its retention.

An erasure starts a new generation of its conversation (`shared.conversation.erasures`). This gateway ends everything it
has of an earlier generation when it learns of a later one: from its own client, from the log of erasures, or from
Redis, which it reads before it resumes an answer or accepts a question.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.request.inflight import InflightTable
from gateway.serving.answering import Answering
from gateway.session.connection import Connection, refuse, start_reply
from shared.conversation.erasure_log import ErasureLog
from shared.conversation.erasures import Erasures
from shared.conversation.history import History
from shared.conversation.journal import Journalled
from shared.conversation.turn import Turn
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry.faults import contain_each
from shared.wire.messages import Erase, SessionDeleted
from shared.wire.session_key import SessionKey


class Generation(NamedTuple):
    """A conversation's generation. `is_sure`: Redis has confirmed it."""

    number: int
    is_sure: bool


@dataclass(slots=True, kw_only=True)
class Erasing:
    """Owned by the gateway's event loop."""

    history: History
    publisher: RequestPublisher
    inflight: InflightTable
    answering: Answering
    people: People
    beside: Tasks
    log: ErasureLog = field(default_factory=ErasureLog)
    _known: Erasures = field(default_factory=Erasures)

    async def generation_of(self, key: SessionKey, now: float) -> Generation:
        """Return the conversation's generation. If Redis is unavailable, it is that of the last erasure in the log.
        Each later erasure has a later one, and no clock decides."""
        try:
            stored = await self.history.generation(key)
        except StoreUnavailable:
            return Generation(self.known_generation(key, now), is_sure=False)
        self._end_before(key, stored, now)
        return Generation(self._known.generation(key, now), is_sure=True)

    def known_generation(self, key: SessionKey, now: float) -> int:
        """Return the generation of the last erasure that this gateway knows, without asking Redis."""
        return max(self._known.generation(key, now), self.log.generation(key))

    def apply(self, erase: Erase, offset: int) -> None:
        """Apply an erasure read from the log at `offset`; any gateway, including this one, may have published it."""
        self.log.add(erase, offset)
        self._end_before(SessionKey(erase.tenant, erase.session_id), erase.generation, now_unix_ms())

    async def erase(self, connection: Connection) -> None:
        """Erase a conversation (`session.delete`): its history, its KV and its open answers. Later questions are kept.
        If Redis is unavailable, the client gets an error and tries again."""
        key = connection.session.key
        known = self.known_generation(key, now_unix_ms())
        least = max(known + 1, int(wire_unix_ms()))
        try:
            generation = await self.history.delete(key, generation=least)
        except StoreUnavailable:
            refuse(connection, _not_erased())
        else:
            self._end_before(key, generation, now_unix_ms())
            start_reply(self.beside, connection, self._publish(connection, generation))

    def note_consent(self, connection: Connection) -> None:
        """Delete what was learned from a returning client's conversation, if the client withdraws its consent to
        training."""
        consent = connection.session.consent
        if consent is None or not consent.training:
            start_reply(self.beside, connection, self._withdraw(connection, asked=consent is not None))

    async def _withdraw(self, connection: Connection, *, asked: bool) -> None:
        """Withdraw a consent to training.

        Args:
            connection: the client's connection
            asked: the client explicitly withdrew it and is sent an error on failure; otherwise its next return tries
                again
        """
        session, now = connection.session.key, int(wire_unix_ms())
        try:
            await self.people.bad_answers.withdraw(session, lambda: self.publisher.forget(session, now), asked=asked)
        except (StoreUnavailable, BrokerUnavailable, ProtocolError):
            if asked:
                refuse(connection, _not_erased())
                connection.flush()

    async def erase_for_edge(self, key: SessionKey, entry: Journalled) -> None:
        """Erase a conversation that an edge has erased. Repeated calls erase it once.

        If it was erased here too, and the edge did not know that, it is unknown which erasure was the later one, since
        the clocks may differ. Then everything is erased, and a generation after both begins.

        Raises:
            StoreUnavailable: Redis is unavailable
            BrokerUnavailable: Kafka is unavailable
        """
        generation = entry.erased or 0
        known = max(await self.history.generation(key), self.log.generation(key))
        is_concurrent = entry.before is not None and known > entry.before
        is_new = not await self.history.was_taken(key, entry)
        if is_concurrent and is_new:
            known = await self.history.delete(key, generation=max(known, generation) + 1)
        elif known < generation:
            known = await self.history.delete(key, generation=generation)
        self._end_before(key, known, now_unix_ms())
        await self.publisher.erase(key, known)
        if is_new:
            await self.history.note_taken(key, entry)

    def was_erased(self, key: SessionKey, turn: Turn) -> bool:
        """Return whether a turn of an edge precedes an erasure of its conversation, according to its generation."""
        return turn.generation < self.log.generation(key)

    def is_too_old(self, turn: Turn) -> bool:
        """Return whether a turn of an edge was asked before the first erasure that gateways still know."""
        return not self.log.covers(turn.asked_unix_ms, wire_unix_ms())

    async def _publish(self, connection: Connection, generation: int) -> None:
        """Publish an erasure to workers and gateways, then confirm it to the client."""
        try:
            await self.publisher.erase(connection.session.key, generation)
        except BrokerUnavailable:
            refuse(connection, _not_erased())
        except ProtocolError as error:
            refuse(connection, error)
        else:
            connection.put(SessionDeleted(session_id=connection.session.session_id))
        connection.flush()

    def _end_before(self, session: SessionKey, generation: int, now: float) -> None:
        """End and forget everything of the conversation's earlier generations."""
        if generation <= self._known.generation(session, now):
            return
        self._known.add(session, generation, now)
        for entry in self.inflight.open_before(session, generation):
            self.answering.cancel(entry)
        contain_each(
            "record",
            lambda: self.inflight.forget_before(session, generation),
            lambda: self.people.forget(session, generation, now),
        )


def _not_erased() -> ProtocolError:
    """Return the error for an erasure that could not reach Redis or Kafka."""
    return ProtocolError(
        "history_unavailable",
        "the history cannot be erased now; try again",
        kind="server_error",
        retriable=True,
        retry_after_ms=1_000,
    )
