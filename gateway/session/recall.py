"""Continue an adopted answer: its text from a worker or the log, its question from its topic."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.request.entry import Entry
from gateway.request.resumption import learn_question
from shared.telemetry.logs import get_logger
from shared.wire.messages import Reply

log = get_logger()

_QUESTION_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Recall:
    """The readers of adopted answers. `adopt` has the worker send its replies here; if none comes within `word_s`, the
    log is read. `topic_of` returns a request's topic."""

    adopt: Callable[[Entry], Awaitable[None]]
    topic_of: Callable[[Entry], str]
    follower: LogFollower
    question_reader: QuestionReader
    word_s: float = 0.25

    async def read(self, entry: Entry, receive: Callable[[list[Reply]], None]) -> None:
        """Call `receive` with an adopted answer's replies; return once all existing ones have been passed on. The
        worker that has the request sends them; else follow the log of its first gateway until `leave`. If the client
        has no text yet, read the question at the same time, else after the log: then it is seldom needed."""
        if entry.publication.published and not entry.answer.done:
            await self.adopt(entry)
            await asyncio.sleep(self.word_s)
        if not entry.seen:
            self._prefetch_question(entry)
        if not (entry.answer.done or entry.answer.has_delta) and entry.request.log is not None:
            await self.follower.join(entry.request.log, entry.request.session.session_id, entry.response_id, receive)
        if entry.seen:
            self._prefetch_question(entry)

    def leave(self, entry: Entry) -> None:
        """Stop following an answer that has ended; do nothing where it was not adopted."""
        if entry.adoption is not None and entry.request.log is not None:
            self.follower.leave(entry.request.log.partition, entry.response_id)

    def _prefetch_question(self, entry: Entry) -> None:
        """Start reading an adopted request's question: the FAQ may have to answer it, and reading may take longer than
        the deadline leaves."""
        if entry.publication.place is not None and not (entry.answer.done or entry.answer.chars or entry.input):
            self.question_reader.read(
                entry.response_id, self.topic_of(entry), entry.publication.place
            ).add_done_callback(partial(_note, entry))

    async def question(self, entry: Entry, now_unix_ms: float) -> str:
        """Return the input of an adopted request; an empty one where it cannot be read in time."""
        if entry.publication.place is None or entry.adoption is None:
            return entry.input
        limit_s = min(max(0.0, entry.adoption.latest_unix_ms - now_unix_ms) / 1_000, _QUESTION_S)
        found = ""
        try:
            async with asyncio.timeout(limit_s):
                found = await asyncio.shield(
                    self.question_reader.read(entry.response_id, self.topic_of(entry), entry.publication.place)
                )
        except TimeoutError:
            log.warning(
                "question_unread", request_id=entry.response_id, cause=f"it did not come within {limit_s:.1f} s"
            )
        return entry.input or found  # its client may have asked again meanwhile


def _note(entry: Entry, question: "asyncio.Future[str]") -> None:
    if not question.cancelled():
        learn_question(entry, question.result())
