"""Get answers from upstream servers: choose the next request and its upstream, and read the stream. On the event loop.

    add → roster (policy, deadlines) → choice of an upstream → stream of pieces → answer (guard) → report

If an upstream fails, the next one is tried, or the same one if it is back in time; without any, the FAQ answers, as for
any request that cannot be met. If it fails in the middle of a text, the answer is generated again, as after a worker's
death: it continues if it begins with the same words, else it ends as incomplete. Closing a stream stops the upstream.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from shared.process.clock import monotonic_s, now_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.faults import caught, task_failed
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey
from workers.answer.thoughts import Habits
from workers.engine.upstream.body import chat_body
from workers.engine.upstream.choice import Choice
from workers.engine.upstream.client import UpstreamClient
from workers.engine.upstream.events import Finish, Piece, believed
from workers.engine.upstream.failures import Cause, UpstreamFailure
from workers.request.job import Job
from workers.schedule.outlook import Outlook
from workers.schedule.sequence import Finished
from workers.schedule.streams import Paces, Streams
from workers.serving.drafts import Drafts
from workers.serving.upstream_stream import PARSE_THOUGHTS, UpstreamStream, conversation_of

# interval for checking deadlines while a request waits or runs
_TURN_S: Final = 0.02
_IDLE_S: Final = 0.5
_AGAIN_S: Final = 0.005
# maximum wait for the usage after the last text
_TAIL_S: Final = 1.0
# share of the time to the first-token deadline that one upstream gets while another could answer
_PATIENCE: Final = 0.5
_LEAST_PATIENCE_S: Final = 0.05
# Maximum tries of a request that upstreams break off, as many as a record's deliveries (docs/decisions/0025).
_MOST_TRIES: Final = 4
_MOST_TOKEN_BYTES: Final = 32
_MOST_FRAME_TOKENS: Final = 64
_PRIORITY_MS: Final = 10
_PRIORITIES: Final = 2**31
_prompt_tokens, _output_tokens = metrics.tokens.labels("prompt"), metrics.tokens.labels("output")


@dataclass(slots=True, kw_only=True, eq=False)
class UpstreamLoop:
    """Runs requests on upstreams; everything is on the event loop.

    Attributes:
        model: the model to ask for; empty for the first one that each upstream lists.
        priority: send deadlines as priorities.
        promise_ms: an upstream without text for half of this time is silent. A client with a shorter deadline is no
            evidence.
    """

    client: UpstreamClient
    choice: Choice
    streams: Streams
    paces: Paces
    drafts: Drafts
    model: str
    priority: bool
    promise_ms: float
    changed: Callable[[], None] = lambda: None
    gone: bool = field(default=False, init=False)
    outlook: Outlook | None = field(default=None, init=False)
    _open: dict[str, UpstreamStream] = field(default_factory=dict, init=False)
    _tasks: Tasks = field(default_factory=lambda: Tasks(task_failed), init=False)
    _probed: set[str] = field(default_factory=set, init=False)
    _models: dict[str, str] = field(default_factory=dict, init=False)
    _away: dict[str, Availability] = field(default_factory=dict, init=False)
    _doubted: set[str] = field(default_factory=set, init=False)
    _habits: Habits = field(default_factory=Habits, init=False)
    _thinkers: set[str] = field(default_factory=set, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _again: int = field(default=0, init=False)

    def add(self, job: Job) -> None:
        self._open[job.id] = UpstreamStream(job)
        self.drafts.add(job)
        self.streams.add(job.sequence, now_unix_ms())
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        self.streams.cancel(request_id)
        self._wake.set()

    def release_unseen(self) -> None:
        """Give up every answer without text."""
        for job in self.drafts.release_unseen():
            stream = self._open.pop(job.id)
            if stream.task is not None:
                stream.task.cancel()
        self.drafts.flush()

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation."""
        self.streams.forget(session)

    def stuck(self) -> str | None:
        """Return None: an upstream failure ends one request or waits for a probe; nothing can hang."""
        return None

    def missing(self) -> str | None:
        """Return why no upstream can be used, for `/ready`: each is unavailable, or rejects the form of every
        request."""
        return self.choice.missing() or self.client.refusals.missing(self.choice.num_addresses)

    def standing(self, session: SessionKey) -> tuple[int, ...]:
        """Return nothing, since upstreams cache KV themselves."""
        del session
        return ()

    async def serve(self) -> None:
        """Serve until cancelled."""
        try:
            while True:
                self.turn(now_unix_ms())
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TURN_S if self._open else _IDLE_S):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self.gone = True
            await self._tasks.cancel()
            await self.client.close()

    def turn(self, now: float) -> None:
        """End requests that must end, send the next ones, probe upstreams that may be back, and update the outlook."""
        for finished in self.streams.sweep(now):
            self._leave(finished)
        back_unix_ms = self.choice.back_unix_ms()
        for sequence in self.streams.hopeless(back_unix_ms) if back_unix_ms > now else ():
            self._end(Finished(sequence, "incomplete", "infeasible"))
        while self.choice.free > self._again and (chosen := self.streams.next(now)) is not None:
            self._begin(self._open[chosen.request_id])
        for address in set(self.choice.due(now)) - self._probed:
            self._probed.add(address)
            self._tasks.start(self._probe(address), "probe")
        self.drafts.flush_due()
        metrics.load.labels("waiting").set(self.streams.num_waiting)
        metrics.load.labels("used").set(self.streams.num_running)
        outlook = None if self.choice.missing() is not None else self.streams.outlook(now)
        if outlook != self.outlook:
            self.outlook = outlook
            self.changed()

    # --- one request

    def _begin(self, stream: UpstreamStream) -> None:
        stream.address = self.choice.pick(stream.conversation)
        stream.task = self._tasks.start(self._answer(stream), stream.job.id)
        stream.task.add_done_callback(lambda _: self._leave_place(stream))

    async def _answer(self, stream: UpstreamStream) -> None:
        """Ask one upstream after another until one has answered."""
        job, tried, tries = stream.job, set[str](), 0
        finished = Finished(job.sequence, "incomplete", "infeasible")
        while stream.address is not None:
            address, tries = stream.address, tries + 1
            try:
                others = self.choice.serves(besides={*tried, address})
                finished = await self._read(stream, address, last=not others)
            except UpstreamFailure as failure:
                self._failed(stream, address, failure)
                if not failure.passing and (not stream.text or failure.blameless):
                    tried.add(address)
                if tries < _MOST_TRIES:
                    stream.address = await self._next_place(job, tried)
            except Exception as error:  # noqa: BLE001 - counted and logged; the others are answered
                caught("answer", error, request_id=job.id)
                job.faulty, finished = True, Finished(job.sequence, "failed", "internal")
                break
            else:
                self._leave_place(stream, answered=True)
        if finished.status == "failed":
            self.streams.finish(job.sequence, failed=True)
        elif finished.unmet:
            self.streams.missed(job.sequence)
        self._end(finished)

    async def _next_place(self, job: Job, tried: set[str]) -> str | None:
        """Wait for a place at an upstream, with priority over requests that were never sent.

        After text was shown only the same text can continue it, so upstreams that are unavailable are awaited too.

        Returns:
            The upstream's address; None if no place is free in time.
        """
        self._again += 1
        try:
            while (address := self.choice.pick(conversation_of(job), besides=tried)) is None:
                back_unix_ms = self.choice.back_unix_ms(besides=tried, patient=bool(job.answer.text))
                if back_unix_ms > job.sequence.due_unix_ms:
                    return None
                await asyncio.sleep(_AGAIN_S)
            return address
        finally:
            self._again -= 1

    async def _read(self, stream: UpstreamStream, address: str, *, last: bool) -> Finished:
        """Return how an upstream's answer ended.

        Raises:
            UpstreamFailure: it failed.
        """
        sequence, finish, now = stream.job.sequence, None, now_unix_ms()
        stream.sent(now, self._habits.of(address))
        left_s = (sequence.due_unix_ms - now) / 1_000
        limit_s = None if last else max(left_s * _PATIENCE, _LEAST_PATIENCE_S)
        try:
            async with asyncio.timeout(limit_s) as limit, aclosing(self._pieces(stream.job, address)) as pieces:
                async for piece in pieces:
                    if (over := self._take(stream, address, piece, limit)) is not None:
                        return over
                    stream.usage = stream.usage if piece.usage is None else piece.usage
                    if piece.finish is not None:
                        finish = piece.finish
                        limit.reschedule(asyncio.get_running_loop().time() + _TAIL_S)
        except TimeoutError:
            if finish is None:
                cause: Cause = "silent" if stream.is_silent(now_unix_ms(), self.promise_ms * _PATIENCE) else "short"
                raise UpstreamFailure(cause, "no text within half of the remaining time") from None
        except UpstreamFailure:
            if finish is None:
                raise
        if finish is not None:
            self._end_thoughts(stream, address, whole=finish == "stop")
        if finish is None or not stream.text.strip():
            raise UpstreamFailure("nothing_said", "its answer has no text; a model that only thinks needs more tokens")
        return self._finished(stream, address, finish)

    def _pieces(self, job: Job, address: str) -> AsyncGenerator[Piece]:
        sequence = job.sequence
        body = chat_body(
            model=self.model or self._models.get(address, ""),
            messages=job.prompt.messages,
            max_tokens=sequence.max_output_tokens,
            sampling=sequence.sampling,
            stop=job.order.request.stop,
            priority=sequence.due_unix_ms // _PRIORITY_MS % _PRIORITIES if self.priority else None,
        )
        return self.client.pieces(address, body)

    def _take(self, stream: UpstreamStream, address: str, piece: Piece, limit: asyncio.Timeout) -> Finished | None:
        """Handle a piece of text or thought; return the end if the answer is over.

        A thought does not end the wait for text.
        """
        if not piece.text and not piece.thinks:
            return None
        self.choice.heard(address, now_unix_ms())
        if self._grow(stream, piece.text):
            limit.reschedule(None)
        return self._over(stream)

    def _grow(self, stream: UpstreamStream, text: str) -> bool:
        """Add a piece of text or thought; return whether any of it may be shown."""
        sequence, now_s = stream.job.sequence, monotonic_s()
        rows, tokens = self.streams.num_running, len(sequence.prompt_ids)
        self.paces.heard(stream.pace, str(stream.address), now_s, prompt_tokens=tokens, rows=rows)
        stream.num_bytes += len(text.encode())
        visible = stream.visible(text)
        if visible:
            self._show(stream, visible)
        else:
            self.streams.grew(sequence, now_unix_ms(), visible=False)
        return bool(visible)

    def _show(self, stream: UpstreamStream, text: str) -> None:
        job, sequence, now = stream.job, stream.job.sequence, now_unix_ms()
        text = stream.new_text(text)
        if not text:
            return
        self.streams.grew(sequence, now)
        job.answer.add_text(text)
        if sequence.shown_unix_ms is None and job.answer.text:
            self.streams.shown(sequence, now)
        self.drafts.note_growth(job)
        self.drafts.flush_due()

    def _end_thoughts(self, stream: UpstreamStream, address: str, *, whole: bool) -> None:
        """Show held-back text that is not a thought, and remember how the upstream marks thoughts."""
        thoughts = stream.thoughts
        if text := stream.rest(whole=whole):
            self._show(stream, text)
        if whole:
            self._habits.learn(address, thoughts.habit, stream.conversation, stream.words)
        if thoughts.found and address not in self._thinkers:
            self._thinkers.add(address)
            get_logger().warning("thoughts_left_out", upstream=address, action=PARSE_THOUGHTS)

    def _over(self, stream: UpstreamStream) -> Finished | None:
        """End an answer early because of a stop string, the guard or a limit."""
        sequence = stream.job.sequence
        most = sequence.max_output_tokens
        if stream.job.answer.stopped:
            self.streams.finish(sequence, by_client=stream.job.answer.stopped_by_client)
            return Finished(sequence, "completed", "stop")
        if stream.pace.pieces > most or stream.num_bytes > most * _MOST_TOKEN_BYTES:
            if text := stream.rest(whole=False):
                self._show(stream, text)
            self.streams.cut(sequence)
            return Finished(sequence, "incomplete", "max_output_tokens")
        return None

    def _finished(self, stream: UpstreamStream, address: str, finish: Finish) -> Finished:
        if stream.place < len(stream.text):
            raise UpstreamFailure("other_words", "it ends before the words that were shown")
        sequence, messages = stream.job.sequence, stream.job.prompt.messages
        counted = believed(
            stream.usage,
            pieces=stream.pace.pieces,
            most_prompt=sum([len(each.content.encode()) + _MOST_FRAME_TOKENS for each in messages]),
            most_output=sequence.max_output_tokens,
        )
        if counted is not None:
            self.streams.counted(sequence, prompt=counted.prompt, cached=counted.cached, output=counted.output)
        elif stream.usage is not None and address not in self._doubted:
            self._doubted.add(address)
            get_logger().warning("usage_not_believed", upstream=address, action="tokens are counted by its pieces")
        if finish == "length":
            self.streams.cut(sequence)
            return Finished(sequence, "incomplete", "max_output_tokens")
        self.streams.finish(sequence)
        return Finished(sequence, "completed", "stop")

    # --- requests that end

    def _leave(self, finished: Finished) -> None:
        """End the stream of a request that the roster has ended."""
        stream = self._open[finished.sequence.request_id]
        stream.late = finished.reason == "deadline" and not finished.sequence.output_ids
        if stream.task is not None:
            stream.task.cancel()
        self._end(finished)

    def _leave_place(self, stream: UpstreamStream, *, answered: bool = False) -> None:
        address, stream.address = stream.address, None
        if address is not None:
            silent = stream.late and stream.is_silent(now_unix_ms(), self.promise_ms * _PATIENCE)
            failure = UpstreamFailure("silent", "no text by the deadline") if silent else None
            self.choice.ended(address, now_unix_ms(), failure, answered=answered, sent_unix_ms=stream.sent_unix_ms)
            self._note(address, failure)
        self._wake.set()

    def _failed(self, stream: UpstreamStream, address: str, failure: UpstreamFailure) -> None:
        get_logger().warning(
            "upstream_failed", request_id=stream.job.id, upstream=address, cause=failure.cause, message=str(failure)
        )
        stream.address = None
        self.choice.ended(
            address,
            now_unix_ms(),
            failure,
            answered=False,
            sent_unix_ms=stream.sent_unix_ms,
            conversation=stream.conversation,
        )
        self._note(address, failure)

    def _end(self, finished: Finished) -> None:
        job = self._open.pop(finished.sequence.request_id).job
        _prompt_tokens.inc(len(job.sequence.prompt_ids) - job.sequence.prefix.restored)
        _output_tokens.inc(len(job.sequence.output_ids))
        self.drafts.finish(finished)
        self.drafts.flush()

    # --- the upstreams

    async def _probe(self, address: str) -> None:
        failure, sent_unix_ms = None, now_unix_ms()
        try:
            self._models[address] = await self.client.first_model(address)
            if self.choice.is_suspected(address):
                await self.client.try_own_words(address, self.model or self._models[address])
        except UpstreamFailure as error:
            failure = error
        finally:
            self._probed.discard(address)
        self.choice.probed(address, now_unix_ms(), failure, sent_unix_ms=sent_unix_ms)
        self._note(address, failure)
        self._wake.set()

    def _note(self, address: str, failure: UpstreamFailure | None) -> None:
        """Log once when an upstream becomes unavailable, and once when it is back."""
        away = self._away.setdefault(address, Availability(f"upstream {address}"))
        if not self.choice.is_open(address):
            away.mark_up()
        elif failure is not None:
            away.mark_down(str(failure), action="the next upstream or the FAQ answers until it is back")
