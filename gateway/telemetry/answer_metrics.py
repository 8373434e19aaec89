"""Update the gateway's metrics, and write one log line, when an answer has ended."""

from typing import Final

from gateway.destination.admission import FallbackReason
from gateway.destination.lanes import Demand
from gateway.request.entry import Entry
from gateway.telemetry.attainment import Attainment, attainment, is_late
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.outcome import BY_MODEL, Response

log = get_logger()

# More workers would not have prevented these.
_NOT_BY_OVERLOAD: Final[frozenset[FallbackReason]] = frozenset({"held", "memory", "worker", "broker"})


def count_answer(entry: Entry, response: Response) -> None:
    to = entry.publication.destination
    metrics.answers.labels(response.source, response.status, response.reason).inc()
    metrics.begun_again.inc(entry.answer.begun_again)
    _count_promise(entry, response)
    timings = response.timings
    if timings.ttft_ms is not None and response.source in BY_MODEL:
        metrics.ttft.labels(to.bucket).observe(timings.ttft_ms / 1_000)
    log.info(
        "answered",
        request_id=entry.response_id,
        trace_id=None if entry.request.trace is None else f"{entry.request.trace.context.trace_id:032x}",
        bucket=to.bucket,
        lane=to.lane,
        revision=response.revision,
        epoch=to.epoch,
        source=response.source,
        status=response.status,
        reason=response.reason,
        fallback=entry.answer.fallback,
        adopted=entry.adoption is not None,
        begun_again=entry.answer.begun_again,
        ttft_ms=timings.ttft_ms,
        total_ms=timings.total_ms,
        output_tokens=response.usage.output_tokens,
    )


def _count_promise(entry: Entry, response: Response) -> None:
    if entry.adoption is not None:
        return  # another gateway sent the first text, and the client was disconnected
    if is_late(response, entry.deadline, entry.request.received_unix_ms):
        metrics.late_terminals.inc()
    if (kept := _attainment(entry, response)) is not None:
        for deadline, met in (("first_token", kept.first_token), ("whole", kept.whole)):
            metrics.deadlines.labels(entry.publication.destination.bucket, deadline, "met" if met else "missed").inc()


def count_judged(entry: Entry, response: Response, demand: Demand) -> None:
    """Count for the autoscaler whether the workers of a lane kept the promise with an answer."""
    if entry.adoption is not None or entry.answer.admitted_unix_ms is None:
        return
    if entry.answer.fallback in _NOT_BY_OVERLOAD or response.status == "failed":
        return
    if (kept := _attainment(entry, response)) is not None:
        demand.judge(entry.publication.destination, in_time=kept.first_token and kept.whole)


def _attainment(entry: Entry, response: Response) -> Attainment | None:
    received, answer = entry.request.received_unix_ms, entry.answer
    return attainment(response, entry.deadline, received, stood_in=answer.stood_in, silent=answer.is_silent)
