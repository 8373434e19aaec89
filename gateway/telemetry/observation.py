"""Describe, for a rollout's controller, how an answer of the new model version or of its control group ended: in time
or not, failed, or by another version. Pure."""

from typing import Final

import msgspec

from gateway.destination.destination import Destination
from gateway.request.entry import Entry
from gateway.telemetry.attainment import attainment
from shared.faq import detect_language
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Rating
from shared.wire.outcome import BY_MODEL, CLAIM_NOTHING, Response
from shared.wire.reports import Observation

OBSERVED: Final[frozenset[Lane]] = frozenset({"canary", "control"})


def observation_of(entry: Entry, response: Response, unix_ms: int, *, moved: bool | None = None) -> Observation | None:
    """Return the observation of an ended answer. It names the version that the request asked for and the one that
    answered.

    An answer by another version never counts as a success of the requested one: it is censored, or has missed its
    deadline. A fallback in place of the workers has missed its deadline too. A question that the workers never got,
    because their lane had no time for it, is censored however it ends; one that they gave up has missed its deadline.

    An answer that its customer stops before the first text says how long that took, so it counts as cancelled.

    Returns:
        None if the answer is no evidence: it belongs to another lane, was adopted from the gateway that observes it, or
            missed only a client deadline shorter than the promise, or a person took the conversation.
    """
    went, received = entry.publication.destination, entry.request.received_unix_ms
    to, answer, total_ms = went.by_rule, entry.answer, response.timings.total_ms
    kept = attainment(response, entry.deadline, received, stood_in=answer.stood_in, silent=answer.is_silent)
    handed_over = response.source == "handoff"
    cancelled = response.status == "cancelled"
    judged = kept is not None or handed_over or cancelled
    if to.lane not in OBSERVED or entry.adoption is not None or not judged or response.reason == "person":
        return None
    is_diverted = went.diverted_from is not None
    if is_diverted and entry.deadline.promised is not None:  # there may have been time for the promise
        return None
    failed = response.status == "failed" and not is_diverted
    missed = went.given_up or (kept is not None and not (kept.first_token and kept.whole) and not is_diverted)
    own = _is_by(response, to)
    cancelled = cancelled and (own or not (response.output_text or is_diverted or went.given_up))
    return Observation(
        response_id=entry.response_id,
        conversation=entry.request.session.digest,
        lane=to.lane,
        revision=to.revision or "",
        epoch=to.epoch or 0,
        unix_ms=unix_ms,
        bucket=to.bucket,
        asked_unix_ms=0 if total_ms is None else max(0, unix_ms - round(total_ms)),
        worker_id=to.worker_id,
        language=detect_language(entry.input),
        tenant=entry.request.session.tenant,
        moved=moved,
        failed=failed,
        missed=missed,
        unsure=own and response.source in CLAIM_NOTHING,
        ttft_ms=response.timings.ttft_ms if own and not answer.stood_in else None,
        answered_by="" if went.given_up else response.revision or "",
        censored=not (own or failed or missed or cancelled or (handed_over and not is_diverted)),
        cancelled=cancelled,
        handed_over=handed_over and not is_diverted,
    )


def has_moved(entry: Entry, before: Lane | None) -> bool | None:
    """Return whether a conversation has moved to another lane than `before`, that of its last answer at this gateway;
    None if unknown. A conversation is new if Redis did not know it and its client sent no turns."""
    destination, asked = entry.publication.destination.by_rule, entry.request.asked
    if before is not None:
        return before != destination.lane
    return False if destination.claimed.is_new and asked is not None and asked.turns is None else None


def _is_by(response: Response, to: Destination) -> bool:
    """Return whether the lane and version that a request was sent to answered it. An answer that a lane's worker gives
    without its model (a greeting, an FAQ entry) names no version."""
    named = response.revision or ("" if response.source in BY_MODEL else to.revision)
    return (response.lane or CHAMPION) == to.lane and named == (to.revision or "")


def rating_of(answer: Observation, rating: Rating, unix_ms: int) -> Observation:
    """Return an observation of a rating, without the outcomes of the rated answer."""
    said_before = {"failed": False, "missed": False, "unsure": False, "ttft_ms": None, "cancelled": False}
    return msgspec.structs.replace(answer, **said_before, rating=rating, unix_ms=unix_ms)
