"""Continue an answer that another gateway began, after its client has reconnected here. The text written so far is read
from the worker or from the reply topic, and the customer's question from the request topic."""

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
    """Read the replies and questions of adopted answers.

    Attributes:
        adopt: makes the worker send its replies to this gateway
        topic_of: returns the topic of a request
        word_s: time to wait for the worker's first reply before the log is read
    """

    adopt: Callable[[Entry], Awaitable[None]]
    topic_of: Callable[[Entry], str]
    follower: LogFollower
    question_reader: QuestionReader
    word_s: float = 0.25

    async def read(self, entry: Entry, receive: Callable[[list[Reply]], None]) -> None:
        """Call `receive` with the replies of an adopted answer; return after all existing ones.

        The worker that has the request sends them. If no reply arrives, the log of the first gateway is followed until
        `leave` is called. The question is read at the same time if the client has no text yet, otherwise after the log,
        when it is rarely needed.
        """
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
        """Stop following the log of an answer that has ended. Does nothing if the answer was not adopted."""
        if entry.adoption is not None and entry.request.log is not None:
            self.follower.leave(entry.request.log.partition, entry.response_id)

    def _prefetch_question(self, entry: Entry) -> None:
        """Start reading the question of an adopted request: the FAQ may need it, and reading may take longer than the
        deadline allows."""
        if entry.publication.place is not None and not (entry.answer.done or entry.answer.chars or entry.input):
            self.question_reader.read(
                entry.response_id, self.topic_of(entry), entry.publication.place
            ).add_done_callback(partial(_note, entry))

    async def question(self, entry: Entry, now_unix_ms: float) -> str:
        """Return the question of an adopted request; an empty string if it cannot be read in time."""
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
            log.warning("question_unread", request_id=entry.response_id, cause=f"not read within {limit_s:.1f} s")
        return entry.input or found  # the client may have repeated the question while it was being read


def _note(entry: Entry, question: "asyncio.Future[str]") -> None:
    if not question.cancelled():
        learn_question(entry, question.result())
