"""End an answer at the gateway: with the fallback's text, by cutting it at the deadline, by a cancel, or as failed.
Pure.

Several parties may end the same answer: this gateway, another one, or a worker. The end that arrives first counts
(`gateway.request.replies` handles those that are received).
"""

from typing import Final

import msgspec

from gateway.request.answer import AnswerState
from gateway.request.entry import Entry, Item
from shared.faq.fallback import Fallback
from shared.wire.outcome import ErrorDetail, Outcome, OutcomeT, Reason, Response, Source, Timings

STANDS_IN: Final[tuple[Source, ...]] = ("faq", "quote", "busy")


def fall_back(entry: Entry, fallback: Fallback, now_unix_ms: float) -> list[Item]:
    """End an answer with the FAQ's text. Raises `AssertionError` if text of the model is visible already."""
    answer = entry.answer
    if answer.visible:
        raise AssertionError(f"{entry.response_id} has text already")
    items: list[Item] = [] if answer.created else [entry.opened()]
    answer.drop_text()
    answer.advance(AnswerState.STREAMING)
    answer.stood_in = fallback.source in STANDS_IN
    shown = entry.show(fallback.text, now_unix_ms)
    outcome = Outcome.uncounted(
        "completed", "stop", fallback.source, grounding=fallback.grounding, faq_version=fallback.faq_version
    )
    return [*items, *shown, *end(entry, outcome, now_unix_ms)]


def cut(entry: Entry, now_unix_ms: float) -> list[Item]:
    """End an answer at its deadline. The text so far is kept."""
    return end(entry, as_shown(entry, Outcome.uncounted("incomplete", "deadline")), now_unix_ms)


def cancel(entry: Entry, now_unix_ms: float, why: Reason = "client") -> list[Item]:
    """End an answer that its client has cancelled, or that a person gives instead."""
    items = entry.open_late()
    return [*items, *end(entry, as_shown(entry, Outcome.uncounted("cancelled", why)), now_unix_ms)]


def hand_over(entry: Entry, now_unix_ms: float) -> list[Item]:
    """End the answer to a question that a person has got; it has no text."""
    return [*entry.open_late(), *end(entry, Outcome.uncounted("completed", "stop", "handoff"), now_unix_ms)]


def fail(entry: Entry, error: ErrorDetail, now_unix_ms: float) -> list[Item]:
    """End an answer after an internal fault. The text so far is kept."""
    items = entry.open_late()
    return [*items, *end(entry, as_shown(entry, Outcome.uncounted("failed", "internal", error=error)), now_unix_ms)]


def as_shown(entry: Entry, outcome: OutcomeT) -> OutcomeT:
    """Return the outcome with the model version and lane of the visible text."""
    revision, to = entry.answer.revision or None, entry.publication.destination
    return msgspec.structs.replace(outcome, model=None, revision=revision, lane=to.lane_named(revision))


def end(entry: Entry, outcome: Outcome, now_unix_ms: float) -> list[Item]:
    """End an answer with the text that this gateway has, ignoring the outcome's own text."""
    timings = _timings(entry, outcome.timings, now_unix_ms)
    answer = entry.answer
    response = outcome.within(Response, id=entry.response_id, output_text=answer.text, timings=timings)
    answer.advance(AnswerState.DONE)
    answer.response, answer.done_unix_ms, answer.aside = response, now_unix_ms, None
    return [*entry.restart(), response]


def _timings(entry: Entry, worker: Timings, now_unix_ms: float) -> Timings:
    """Return the worker's timings together with the gateway's."""
    start, admitted = entry.request.received_unix_ms, entry.answer.admitted_unix_ms
    first_text = entry.answer.first_text_unix_ms
    return msgspec.structs.replace(
        worker,
        admission_ms=round(admitted - start, 3) if admitted is not None else None,
        ttft_ms=round(first_text - start, 3) if first_text is not None else None,
        total_ms=round(now_unix_ms - start, 3),
    )
