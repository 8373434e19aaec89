"""The same conversation for code without an event loop. A separate thread runs one, and answers the gateway's pings
between calls."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from shared.client.session import AsyncReplyline, Token
from shared.client.telling import AnswerEvent
from shared.wire.messages import (
    Consent,
    FeedbackRecorded,
    HandoffCreated,
    Language,
    Rating,
    RatingReason,
    ResponseCreate,
    SessionCreated,
)
from shared.wire.outcome import Response

T = TypeVar("T")


async def _next(events: AsyncIterator[AnswerEvent]) -> AnswerEvent | None:
    return await anext(events, None)


class Replyline:
    """One conversation, as `AsyncReplyline` has it. Use as a context manager."""

    def __init__(
        self,
        url: str,
        *others: str,
        token: Token = None,
        session_id: str | None = None,
        patience_s: float = 30.0,
        consent: Consent | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replyline-client", daemon=True)
        self._client = AsyncReplyline(
            url, *others, token=token, session_id=session_id, patience_s=patience_s, consent=consent
        )

    def __enter__(self) -> Self:
        """Connect. Raises `ConnectFailed`, and `SettingsError` for an invalid address."""
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._client.__aexit__(kind, error, trace))
        finally:
            self._end()

    @property
    def session(self) -> SessionCreated | None:
        """Return what the gateway said of the session: its id, its limits."""
        return self._client.session

    def ask(self, question: str | ResponseCreate) -> Iterator[AnswerEvent]:
        """Yield the events of one answer, until its `ResponseDone`. A second `ResponseCreated` says that the text comes
        otherwise, from its beginning. Raises `Refused`, and `ConnectFailed` when the connection ends first."""
        events = self._client.ask(question)
        try:
            while (event := self._run(_next(events))) is not None:
                yield event
        except GeneratorExit:
            self._run(events.aclose())
            raise

    def answer(self, question: str | ResponseCreate) -> Response:
        """Return a whole answer. Raises as `ask` does."""
        return self._run(self._client.answer(question))

    def cancel(self, event_id: str) -> None:
        """Stop an answer: its `ResponseDone` says "cancelled", unless it has ended already."""
        self._run(self._client.cancel(event_id))

    def hand_off(self, language: Language = "en") -> HandoffCreated:
        """Ask for a person. Raises as `ask` does."""
        return self._run(self._client.hand_off(language))

    def rate(
        self,
        response_id: str,
        rating: Rating | None = None,
        *,
        resolved: bool | None = None,
        reason: RatingReason | None = None,
    ) -> FeedbackRecorded:
        """Rate an answer: the last rating counts, whole. Raises as `ask` does."""
        return self._run(self._client.rate(response_id, rating, resolved=resolved, reason=reason))

    def erase(self) -> None:
        """Erase the conversation. Raises as `ask` does: then it is not erased."""
        self._run(self._client.erase())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, while it is waited for
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
