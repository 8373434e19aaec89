"""Ask the centre the questions that this edge is unsure of, and publish its answer as it arrives.

A question uses the conversation's own WebSocket and what remains of its deadline after the link's delay. If the centre
is unreachable, refuses, or sends nothing in time, this edge answers itself. If the link fails after text was shown, the
answer continues after a reconnect (by the client's cursor), or ends at its deadline with the text shown so far.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from shared.client import AnswerEvent, AsyncReplyline, ResponseCreate, ResponseDelta, ResponseDone
from shared.client.telling import ConnectFailed
from shared.errors import ReplylineError
from shared.faq.speech.words import says_busy
from shared.process.clock import monotonic_s, now_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import contained, task_failed
from shared.telemetry.logs import get_logger
from shared.wire.outcome import CLAIM_NOTHING, Outcome
from shared.wire.session_key import SessionKey
from workers.edge.link_time import ANSWER_MS, LinkTime
from workers.request.job import Job
from workers.schedule.sequence import Finished
from workers.serving.drafts import Ended, Grown, Progress

log = get_logger()

Publish = Callable[[list[Progress]], None]
AnswerHere = Callable[[Job], None]

_MOST_OPEN: Final = 1_000
_IDLE_S: Final = 600.0
_JOURNAL_WAIT_S: Final = 0.5
_USELESS: Final = frozenset({"failed", "cancelled"})


class CentreLink(Protocol):
    """The link to the centre: `workers.edge.sync`. Connections opened before `back_s` may be dead."""

    @property
    def back_s(self) -> float: ...

    @property
    def away(self) -> bool: ...

    def lost(self, cause: str) -> None: ...

    async def push(self) -> None: ...


class NoAnswer(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The centre has no answer that can be shown."""

    code = "no_answer"


@dataclass(slots=True, eq=False)
class _CentreQuestion:
    """A question sent to the centre. `text` is the part of the answer that was shown; `chat` is the connection."""

    job: Job
    publish: Publish
    text: str = ""
    chat: AsyncReplyline | None = None

    def take(self, event: AnswerEvent) -> bool:
        """Publish new text; return whether any was shown so far.

        Raises:
            NoAnswer: the answer does not continue the text that was shown, or has no text.
        """
        if isinstance(event, ResponseDone):
            self._end(event.response)
        elif isinstance(event, ResponseDelta):
            known = self.text[event.offset : event.offset + len(event.delta)]
            if event.offset > len(self.text) or not event.delta.startswith(known):
                raise NoAnswer("the answer starts again with other words than were shown")
            self._grow(event.delta[len(known) :])
        return bool(self.text)

    def _grow(self, new: str) -> None:
        if not self.text and says_busy(new):
            raise NoAnswer("the centre is busy")
        if new:
            self.text += new
            self.job.answer.add_text(new)
            if (delta := self.job.answer.pop_delta()) is not None:
                self.job.sequence.shown_unix_ms = self.job.sequence.shown_unix_ms or now_unix_ms()
                self.publish([Grown(self.job, delta)])

    def _end(self, outcome: Outcome) -> None:
        if not outcome.output_text.startswith(self.text):
            raise NoAnswer("the answer ends with other words than were shown")
        if not self.text and (outcome.status in _USELESS or not outcome.output_text or outcome.source == "busy"):
            raise NoAnswer(f"the centre has no answer ({outcome.status}, {outcome.source})")
        self.end(outcome)

    def end(self, outcome: Outcome) -> None:
        self.job.outcome = outcome
        self.publish([Ended(self.job, Finished(self.job.sequence, outcome.status, outcome.reason))])


@dataclass(slots=True, kw_only=True, eq=False)
class CentreClient:
    """Asks the centre; runs on the event loop.

    Attributes:
        token: returns the edge's token, for each connection.
        tenant: the edge's tenant; questions of other tenants are not sent.
        link: the link's measured delay.
        reach: the state of the link.
    """

    url: str
    token: Callable[[], str]
    tenant: str
    link: LinkTime
    reach: CentreLink
    _chats: OrderedDict[SessionKey, tuple[AsyncReplyline, float]] = field(default_factory=OrderedDict, init=False)
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _tasks: Tasks = field(default_factory=lambda: Tasks(task_failed), init=False)

    def ask(self, job: Job, publish: Publish, here: AnswerHere) -> bool:
        """Ask the centre if this edge is unsure and the centre can answer in time; return whether it is asked.

        Args:
            job: the question.
            publish: called with new text and the end.
            here: answers at this edge, if the centre gives no answer.
        """
        if job.session.tenant != self.tenant or not job.decided or job.fallback.source not in CLAIM_NOTHING:
            metrics.edge_questions.labels("here").inc()
            return False
        if self.reach.away or self.link.left_ms(job.order.deadline.first_token_unix_ms, now_unix_ms()) <= 0:
            metrics.edge_questions.labels("unsure").inc()
            return False
        task = self._tasks.start(self._answer(_CentreQuestion(job, publish), here), job.id)
        self._asking[job.id] = task
        task.add_done_callback(lambda _: self._asking.pop(job.id, None))
        return True

    def cancel(self, request_id: str) -> bool:
        """Cancel a question at the centre; return whether it was there."""
        task = self._asking.get(request_id)
        return task is not None and task.cancel()

    async def _answer(self, asked: _CentreQuestion, here: AnswerHere) -> None:
        """Get the answer. After an internal fault the edge answers itself."""
        job = asked.job
        with contained("answer", request_id=job.id) as asking:
            if await self._is_answered(asked):
                return
        if asking.error is not None:
            self._leave(asked)
        metrics.edge_questions.labels("unsure").inc()
        if asked.text:
            asked.end(Outcome.uncounted("incomplete", "deadline", output_text=asked.text))
        else:
            here(job)

    async def _is_answered(self, asked: _CentreQuestion) -> bool:
        """Ask, and return whether the answer has ended, by the centre or by a cancel."""
        job = asked.job
        try:
            async with asyncio.timeout(_seconds_until(job.order.deadline.first_token_unix_ms - ANSWER_MS)) as limit:
                asked.chat = chat = await self._chat(job.session)
                async for event in chat.ask(self._request(job)):
                    if asked.take(event):
                        until_s = _seconds_until(job.order.deadline.deadline_unix_ms)
                        limit.reschedule(asyncio.get_running_loop().time() + until_s)
        except asyncio.CancelledError:
            self._leave(asked)
            if not job.withdrawn:
                raise
            asked.end(Outcome.uncounted("cancelled", "client", output_text=asked.text))
        except (ReplylineError, TimeoutError) as error:
            self._failed(asked, error)
            return False
        else:
            metrics.edge_questions.labels("centre").inc()
        return True

    def _failed(self, asked: _CentreQuestion, error: Exception) -> None:
        """Give up a question. A connection that gave no answer is not used again."""
        cause = str(error) or "nothing came in time"
        log.warning("centre_failed", request_id=asked.job.id, cause=cause)
        if isinstance(error, ConnectFailed):
            self.reach.lost(cause)
        self._leave(asked)
        if isinstance(error, ConnectFailed | TimeoutError):
            self._close(asked.job.session, after_s=_IDLE_S)  # it may still receive another answer

    def _leave(self, asked: _CentreQuestion) -> None:
        """Cancel the answer at the centre."""
        if asked.chat is not None:
            self._tasks.start(asked.chat.cancel(asked.job.id), "cancel")

    def _request(self, job: Job) -> ResponseCreate:
        """Return the question with the remaining deadline.

        Raises:
            NoAnswer: no time remains.
        """
        request, deadline, now = job.order.request, job.order.deadline, now_unix_ms()
        first_ms = self.link.left_ms(deadline.first_token_unix_ms, now)
        if first_ms <= 0:
            raise NoAnswer("the link's delay exceeds the remaining time")
        return request.within(
            ResponseCreate,
            event_id=job.id,
            metadata={},
            first_token_ms=first_ms,
            deadline_ms=max(first_ms, self.link.left_ms(deadline.deadline_unix_ms, now)),
        )

    async def _chat(self, session: SessionKey) -> AsyncReplyline:
        """Return the conversation's connection to the centre, after the journal was sent there unless that takes long.

        Raises:
            ConnectFailed: the centre cannot be reached.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_JOURNAL_WAIT_S):
                await self.reach.push()
        now_s = monotonic_s()
        for idle in [key for key, (_, used_s) in self._chats.items() if now_s - used_s > _IDLE_S]:
            self._close(idle)
        known = self._chats.get(session)
        if known is None or known[1] < self.reach.back_s:
            self._close(session, after_s=_IDLE_S)
            chat = AsyncReplyline(self.url, token=self.token, session_id=session.session_id)
            await chat.__aenter__()
            if session in self._chats:  # another question has opened one in the meantime
                self._tasks.start(_closed(chat, 0.0), "close")
                chat = self._chats[session][0]
        else:
            chat = known[0]
        self._chats[session] = (chat, now_s)
        self._chats.move_to_end(session)
        if len(self._chats) > _MOST_OPEN:
            self._close(next(iter(self._chats)))
        return chat

    def _close(self, session: SessionKey, *, after_s: float = 0.0) -> None:
        known = self._chats.pop(session, None)
        if known is not None:
            self._tasks.start(_closed(known[0], after_s), "close")

    async def close(self) -> None:
        """Cancel the open questions and close the connections."""
        await self._tasks.cancel()
        for session in list(self._chats):
            self._close(session)
        await self._tasks.drain(1.0)


async def _closed(chat: AsyncReplyline, after_s: float) -> None:
    try:
        await asyncio.sleep(after_s)
    finally:
        await chat.__aexit__(None, None, None)


def _seconds_until(unix_ms: float) -> float:
    return (unix_ms - now_unix_ms()) / 1_000
