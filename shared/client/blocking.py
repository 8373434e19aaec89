"""The client for code without an event loop. A background thread runs one, so pings are answered between calls too."""

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
    """One conversation, with the methods of `AsyncReplyline` as blocking calls. Use as a context manager."""

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
        """Connect.

        Raises:
            ConnectFailed: no gateway answers.
            SettingsError: an address is invalid.
        """
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
        """Return what the gateway sent about the session: its id and its limits."""
        return self._client.session

    def ask(self, question: str | ResponseCreate) -> Iterator[AnswerEvent]:
        """Yield the events of one answer up to its `ResponseDone`.

        A second `ResponseCreated` means that the answer starts again with another text.

        Raises:
            Refused: the gateway refused the question.
            ConnectFailed: the connection was lost for good before the answer ended.
        """
        events = self._client.ask(question)
        try:
            while (event := self._run(_next(events))) is not None:
                yield event
        except GeneratorExit:
            self._run(events.aclose())
            raise

    def answer(self, question: str | ResponseCreate) -> Response:
        """Return a whole answer. Raises what `ask` raises."""
        return self._run(self._client.answer(question))

    def cancel(self, event_id: str) -> None:
        """Stop an answer. Its `ResponseDone` then has the status "cancelled", unless it had already ended."""
        self._run(self._client.cancel(event_id))

    def hand_off(self, language: Language = "en") -> HandoffCreated:
        """Ask for a person. Raises what `ask` raises."""
        return self._run(self._client.hand_off(language))

    def rate(
        self,
        response_id: str,
        rating: Rating | None = None,
        *,
        resolved: bool | None = None,
        reason: RatingReason | None = None,
    ) -> FeedbackRecorded:
        """Rate an answer; this replaces an earlier rating. Raises what `ask` raises."""
        return self._run(self._client.rate(response_id, rating, resolved=resolved, reason=reason))

    def erase(self) -> None:
        """Erase the conversation. Raises what `ask` raises; after an error it may not be erased."""
        self._run(self._client.erase())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # for example Ctrl-C while waiting
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
