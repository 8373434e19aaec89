"""Store answers that customers rated bad, if they consented to training, so that people can correct them
(docs/lifecycle.md)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gateway.access.charges import Caller
from shared.conversation.corrections import (
    KEPT_S,
    BadAnswer,
    bad_answer,
    decode_bad_answers,
    encode_bad_answers,
    source_of,
    with_one_more,
    without,
)
from shared.conversation.history import History
from shared.conversation.session_value import SessionValue
from shared.errors import StoreUnavailable
from shared.process.clock import now_unix_ms
from shared.process.keyed_locks import KeyedLocks
from shared.process.tasks import Tasks
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.wire.messages import Feedback
from shared.wire.session_key import SessionKey

_MOST_TURNS = 50
_MOST_WAITING = 100
_TRIES = 3


@dataclass(slots=True, kw_only=True)
class BadAnswers:
    """Stores ratings next to the conversation in Redis, in order. While Redis is unavailable, ratings are dropped
    immediately."""

    history: History
    store: SessionValue
    _beside: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _locks: KeyedLocks = field(default_factory=KeyedLocks)

    def record_rating(self, caller: Caller, feedback: Feedback, *, helped: bool, consented_unix_ms: float) -> None:
        """Store an answer that did not help; remove it if a later rating says that it did. Never raises.
        `consented_unix_ms` is when the current consent was given."""
        if len(self._beside) < _MOST_WAITING:
            self._beside.start(self._note(caller, feedback, helped=helped, consented_unix_ms=consented_unix_ms))

    async def _note(self, caller: Caller, feedback: Feedback, *, helped: bool, consented_unix_ms: float) -> None:
        try:
            async with self._locks.hold(caller.session):
                await self._change(caller, feedback, helped=helped, consented_unix_ms=consented_unix_ms)
        except StoreUnavailable as error:
            get_logger().info("bad_answer_not_kept", request_id=feedback.response_id, cause=str(error))

    async def _change(self, caller: Caller, feedback: Feedback, *, helped: bool, consented_unix_ms: float) -> None:
        """Change the stored ratings of a conversation whose lock is held. Raises `StoreUnavailable`."""
        session, new = caller.session, None
        generation = await self.store.generation(session)
        if not helped:
            new = await self._bad_answer(caller, feedback, generation)
            if new is None:
                return
        for _ in range(_TRIES):  # another gateway may write a rating in between
            found = await self.store.find(session)
            before = decode_bad_answers(found) if found is not None else ()
            kept = without(before, feedback.response_id) if new is None else with_one_more(before, new)
            if kept == before or await self.store.replace(
                session,
                encode_bad_answers(kept),
                found,
                generation=generation,
                kept_s=KEPT_S,
                consented_unix_ms=consented_unix_ms,
            ):
                return

    async def _bad_answer(self, caller: Caller, feedback: Feedback, generation: int) -> BadAnswer | None:
        """Return the answer with its question; None if the history does not have it. Raises `StoreUnavailable`."""
        turns = await self.history.turns(
            caller.session, limit=_MOST_TURNS, before_unix_ms=float("inf"), generation=generation
        )
        turn = next((each for each in turns if each.request_id == feedback.response_id), None)
        source = source_of(caller.session, caller.subject, caller.address)
        now = now_unix_ms()
        return None if turn is None else bad_answer(turn, source=source, reason=feedback.reason, now_unix_ms=now)

    async def withdraw(self, session: SessionKey, forget: Callable[[], Awaitable[None]], *, asked: bool) -> None:
        """Remove a conversation's bad answers after calling `forget`, which removes what was learned from them.

        Does nothing if the conversation has no bad answers and had none in the last 30 days, unless `asked`. Ratings
        under an earlier consent are not stored afterwards. Raises `StoreUnavailable`, and the exceptions of `forget`.
        """
        found = await self.store.withdraw(session, now_unix_ms(), asked=asked)
        if asked or found is not None:
            await forget()
        if found is not None and not await self.store.remove(session, found):
            await self._remove_from_newer(session, decode_bad_answers(found))

    async def _remove_from_newer(self, session: SessionKey, old: tuple[BadAnswer, ...]) -> None:
        """Remove bad answers from the value that a rating under a newer consent has written. Raises
        `StoreUnavailable`."""
        for _ in range(_TRIES):
            generation, found = await self.store.generation(session), await self.store.find(session)
            before = decode_bad_answers(found) if found is not None else ()
            kept = tuple(each for each in before if each not in old)
            if kept == before or await self.store.replace(
                session, encode_bad_answers(kept), found, generation=generation, kept_s=KEPT_S
            ):
                return

    async def close(self) -> None:
        await self._beside.cancel()
        await self.store.close()
