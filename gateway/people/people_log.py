"""Write to `chat.people`, and find out which of the records count."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.people.talks import Talk, Talks
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Producer, acknowledged
from shared.records.log_readers import people_record
from shared.wire.messages import Language, PeopleMove, PeopleRecord, TalkState
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames

_READ_WITHIN_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class PeopleLog:
    """Owned by the gateway's event loop. `loaded` is set once all that was written before has been read."""

    producer: Producer
    topics: TopicNames
    talks: Talks = field(default_factory=Talks)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(self, record: PeopleRecord) -> None:
        """Write a record, and wait until this gateway has applied it. Raises `ProtocolError`."""
        try:
            _, offset = await acknowledged(self.producer.publish(people_record(self.topics, record)))
            await self.until(lambda: self.talks.position > offset, _READ_WITHIN_S)
        except (BrokerUnavailable, TimeoutError):
            raise _unavailable() from None

    async def move(
        self,
        session: SessionKey,
        to: TalkState,
        *,
        epoch: int | None = None,
        agent: str = "",
        name: str = "",
        reason: str = "",
        language: Language = "en",
        generation: int = 0,
    ) -> Talk | None:
        """Move a conversation.

        Args:
            epoch: that of the move which the author has seen; None for the last one.

        Returns:
            The conversation; None if it was erased in the meantime.

        Raises:
            ProtocolError: `lost_race` if another author moved it first
        """
        talk = self.talks.find(session)
        seen = epoch if epoch is not None else 0 if talk is None else talk.epoch
        if talk is None or (talk.epoch == seen and talk.may_move(to, agent)):
            move = PeopleMove(
                tenant=session.tenant,
                session_id=session.session_id,
                epoch=seen + 1,
                to=to,
                agent=agent,
                name=name,
                reason=reason,
                language=language,
                generation=max(generation, talk.generation if talk is not None else 0),
            )
            await self.publish(move)
            talk = self.talks.find(session)
        if talk is not None and (talk.epoch != seen + 1 or talk.state != to or talk.mover != agent):
            raise _moved_before(talk)
        return talk

    def set_loaded(self) -> None:
        self.loaded.set()
        self.applied()

    def applied(self) -> None:
        """Wake those who wait for a record."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def leave(self) -> None:
        """End each wait for news, since the gateway stops."""
        self.leaving = True
        self.applied()

    async def wait(self, condition: Callable[[], bool], within_s: float) -> None:
        """Wait until records have made a condition true, at most for a while, and not for a gateway that stops."""
        with suppress(TimeoutError):
            await self.until(lambda: self.leaving or condition(), within_s)

    async def until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Wait until records have made a condition true. Raises `TimeoutError`."""
        async with asyncio.timeout(within_s):
            while not condition():
                await self._news.wait()


def _moved_before(talk: Talk) -> ProtocolError:
    who = talk.name if talk.state == "taken" else talk.mover
    how = {"taken": "has it", "waiting": "let it wait", "bot": "handed it back", "resolved": "resolved it"}[talk.state]
    return ProtocolError("lost_race", f"{who or 'the gateway'} {how}; read the conversation again", param="epoch")


def _unavailable() -> ProtocolError:
    return ProtocolError(
        "people_unavailable",
        "the message could not be stored; send it again with the same id",
        kind="server_error",
        retriable=True,
        retry_after_ms=1_000,
    )
