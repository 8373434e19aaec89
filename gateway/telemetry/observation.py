"""Report how an answer of a rollout ended, as evidence for or against its version. Pure."""

from typing import Final

import msgspec

from gateway.request.entry import Entry
from gateway.telemetry.attainment import attainment
from shared.wire.lanes import Lane
from shared.wire.messages import Observation, Rating
from shared.wire.outcome import Response

OBSERVED: Final[frozenset[Lane]] = frozenset({"canary", "control"})


def observation_of(entry: Entry, response: Response, unix_ms: int) -> Observation | None:
    """Return the observation of an answer that has ended; None of another lane's, and of one that says nothing:
    cancelled, handed to a person, adopted from the gateway that observes it, or late only by a deadline that its client
    made sooner than the promise.

    It counts for the lane and version that its request was sent to, whoever answered in the end: else the answers that
    a bad version leaves to others would be missing. A fallback in the workers' stead has missed its deadlines."""
    to, received = entry.publication.destination, entry.request.received_unix_ms
    kept = attainment(response, entry.deadline, received, stood_in=entry.answer.stood_in)
    if to.lane not in OBSERVED or entry.adoption is not None or kept is None:
        return None
    return Observation(
        response_id=entry.response_id,
        conversation=entry.request.session.digest,
        lane=to.lane,
        revision=to.revision or "",
        epoch=to.epoch or 0,
        unix_ms=unix_ms,
        bucket=to.bucket,
        failed=response.status == "failed",
        missed=not (kept.first_token and kept.whole),
        unsure=response.source == "unsure",
        ttft_ms=None if entry.answer.stood_in else response.timings.ttft_ms,
    )


def rating_of(answer: Observation, rating: Rating, unix_ms: int) -> Observation:
    """Return the observation of an observed answer's rating, which says nothing else of it."""
    said_before = {"failed": False, "missed": False, "unsure": False, "ttft_ms": None}
    return msgspec.structs.replace(answer, **said_before, rating=rating, unix_ms=unix_ms)
