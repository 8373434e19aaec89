"""Decide how an answer ends: build the terminal event for its readers, and the turn that is stored in the
conversation's history. Pure."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from shared.conversation.turn import Turn
from shared.faq.fallback import Fallback
from shared.wire.failed_ends import OWN_FAULT
from shared.wire.messages import ReplyDone
from shared.wire.outcome import BY_MODEL, ErrorDetail
from workers.request.job import Job
from workers.schedule.sequence import Finished

_ENGINE_FAILED: Final = ErrorDetail(
    type="server_error", code="engine_failed", message="the engine failed in this answer; ask again", retryable=True
)


def ended_at_once(job: Job, *, cancelled: bool, now_unix_ms: float) -> Finished:
    """Return how a request ends that does not need the model."""
    if cancelled:
        return Finished(job.sequence, "cancelled", "client")
    if job.order.deadline.expired(now_unix_ms, started=False):
        return Finished(job.sequence, "incomplete", "deadline")
    return Finished(job.sequence, "completed", "stop")


def terminal_event(job: Job, finished: Finished, *, model: str, gateways: str) -> ReplyDone:
    """Return the terminal event; `gateways` is the gateways' own reply topic."""
    if job.outcome is not None:
        return job.answer.ended(job.outcome)
    fallback, faq_version = _in_place_of_model(job, finished, gateways), (job.instead or job.fallback).faq_version
    if fallback is not None:
        return job.answer.done(
            instead=(fallback.text, fallback.source),
            status="completed",
            reason="stop",
            usage=job.usage(),
            timings=job.timings(),
            grounding=fallback.grounding,
            faq_version=fallback.faq_version,
        )
    error = (OWN_FAULT if job.faulty else _ENGINE_FAILED) if finished.status == "failed" else None
    return job.answer.done(
        status=finished.status,
        reason=finished.reason,
        usage=job.usage(),
        timings=job.timings(),
        model=model,
        grounding=job.prompt.grounding,
        faq_version=faq_version if job.prompt.grounding else None,
        error=error,
    )


def turn_of(job: Job, done: ReplyDone, wire_now_unix_ms: float, *, others: Iterable[str] = ()) -> Turn | None:
    """Return the turn for the history.

    Args:
        job: the answered request.
        done: its terminal event.
        wire_now_unix_ms: the current time by the wall clock.
        others: ids of the conversation's other open questions at this worker.

    Returns:
        None if the answer failed or has no text, or if its conversation was erased. A cancelled answer is a turn even
        without text: it counts before that of a worker that missed the cancel.
    """
    if job.erased or done.status == "failed" or not (done.output_text or done.status == "cancelled"):
        return None
    order, prompt = job.order, job.prompt
    by_model = done.source in BY_MODEL
    return done.within(
        Turn,
        request_id=job.id,
        user=order.request.input,
        asked_unix_ms=order.asked_unix_ms,
        timings=replace(done.timings, total_ms=wire_now_unix_ms - order.asked_unix_ms),
        grounding=prompt.grounding if by_model and job.outcome is None else done.grounding,
        # an upstream returns only the text, not its tokens
        output_ids=tuple(job.sequence.output_ids) if by_model and not prompt.messages else (),
        window_start=(prompt.window_start or job.id) if by_model and job.outcome is None else None,
        generation=order.generation,
        concurrent=tuple(dict.fromkeys((*order.request.concurrent, *others))),
    )


def _in_place_of_model(job: Job, finished: Finished, gateways: str) -> Fallback | None:
    if finished.unmet and not job.answer.text:
        # A gateway answers its client from the FAQ itself, or already has; for other services the worker does.
        return job.fallback if job.order.reply_topic != gateways else None
    if finished.status not in ("completed", "incomplete"):
        return None
    if job.decided:
        return job.fallback
    if not job.answer.withheld:
        return None
    return (job.quoted if job.answer.abstained else None) or job.instead or job.fallback
