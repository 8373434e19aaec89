"""Make the spans of an ended request: the gateway's, and the worker's if the worker sent its times. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from gateway.request.cursor import Place
from gateway.request.entry import Entry, RequestTrace
from gateway.telemetry.attainment import attainment, is_late
from shared.tracing import conventions as names
from shared.tracing.spans import Attribute, Event, KeepRules, Span, SpanProcess, SpanTree, Trace, Why
from shared.tracing.worker import add_worker_spans, clock_shift_ms, shifted, topic_attributes
from shared.wire.outcome import Response

_FIRST_TEXT: Final = "first text"
_LAST_TEXT: Final = "last text"
_ADOPTED: Final = "adopted"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTrace:
    """The data that the spans are made of; no text and no client names. The worker's times may still be added to
    `trace`. The time on the wire is `clock_ms` ahead of these times."""

    trace: RequestTrace
    why: Why
    gateway_id: str
    request_topic: str
    reply_topic: str
    place: Place | None
    received_unix_ms: float
    admitted_unix_ms: float | None
    first_text_unix_ms: float | None
    done_unix_ms: float
    clock_ms: int
    attributes: dict[str, Attribute]

    @property
    def error(self) -> str:
        """Return the kind of error; empty if the promise was kept."""
        return str(self.attributes.get(names.ERROR_TYPE, ""))

    @property
    def awaits_worker(self) -> bool:
        """Return whether a worker may have the request and has not sent its end yet."""
        return self.trace.sent_unix_ms is not None and self.trace.heard_unix_ms is None


def why_kept(entry: Entry, response: Response, rules: KeepRules) -> Why | None:
    """Return why a trace is kept; None if it is not kept or was not recorded.

    The client's own deadline counts, even if it is shorter than the shop's. The first text of an adopted answer is not
    judged, because its time is unknown.
    """
    if entry.request.trace is None:
        return None
    received, deadline = entry.request.received_unix_ms, replace(entry.deadline, promised=None)
    kept = attainment(response, deadline, received, stood_in=entry.answer.stood_in)
    in_time = kept is None or (kept.whole and (kept.first_token or entry.adoption is not None))
    missed = not in_time or is_late(response, deadline, received)
    return rules.why(
        trace_id=entry.request.trace.context.trace_id,
        missed=missed,
        total_ms=entry.answer.done_unix_ms - received,
        deadline_ms=deadline.deadline_unix_ms - received,
    )


def kept_trace(
    entry: Entry, response: Response, why: Why, *, gateway_id: str, request_topic: str, reply_topic: str
) -> KeptTrace:
    """Return the data of a trace that is kept."""
    assert entry.request.trace is not None, "only a recorded trace is kept"
    received = entry.request.received_unix_ms
    attributes: dict[str, Attribute] = {
        names.BUCKET: entry.publication.destination.bucket,
        names.SOURCE: response.source,
        names.STATUS: response.status,
        names.REASON: response.reason,
        names.KEPT: why,
        names.FIRST_DEADLINE_MS: round(entry.deadline.first_token_unix_ms - received),
        names.DEADLINE_MS: round(entry.deadline.deadline_unix_ms - received),
    }
    if entry.answer.fallback is not None:
        attributes[names.FALLBACK] = entry.answer.fallback
    if why == "missed":
        attributes[names.ERROR_TYPE] = entry.answer.fallback or response.reason
    return KeptTrace(
        trace=entry.request.trace,
        why=why,
        gateway_id=gateway_id,
        request_topic=request_topic,
        reply_topic=reply_topic,
        place=entry.publication.place,
        received_unix_ms=received,
        admitted_unix_ms=entry.answer.admitted_unix_ms,
        first_text_unix_ms=entry.answer.first_text_unix_ms,
        done_unix_ms=entry.answer.done_unix_ms,
        clock_ms=entry.request.clock_ms,
        attributes=attributes,
    )


def spans_of(ended: KeptTrace) -> Trace:
    """Return the spans: root → send, admit, the time in the topic, the worker's half, the reply's way back, deliver.
    The root of an adopted answer is a child of the accepting gateway's root, and that gateway's other spans are
    omitted."""
    tree, gateway = SpanTree(ended.trace.context), SpanProcess("gateway", ended.gateway_id)
    adopted = ended.trace.adopted
    root = tree.add(
        "response.create" if adopted is None else "response.resume",
        ended.received_unix_ms,
        ended.done_unix_ms,
        process=gateway,
        kind="server",
        attributes=ended.attributes,
        events=[] if adopted is None else [Event(_ADOPTED, adopted.unix_ms)],
        error=ended.error,
    )
    if ended.trace.sent_unix_ms is not None:
        _add_send(tree, ended, root, ended.trace.sent_unix_ms)
    if ended.admitted_unix_ms is not None:
        tree.add("admit", ended.received_unix_ms, ended.admitted_unix_ms, process=gateway, parent=root)
    if ended.trace.worker is not None and (adopted is not None or ended.trace.sent_unix_ms is not None):
        _add_worker(tree, ended, root)
    if ended.first_text_unix_ms is not None:
        last = ended.trace.last_text_unix_ms
        events = [Event(_FIRST_TEXT, ended.first_text_unix_ms)]
        events += [] if last is None else [Event(_LAST_TEXT, last)]
        tree.add("deliver", ended.first_text_unix_ms, ended.done_unix_ms, process=gateway, parent=root, events=events)
    return tree.trace(clock_ms=ended.clock_ms)


def _add_send(tree: SpanTree, ended: KeptTrace, root: Span, sent_unix_ms: float) -> None:
    acked = ended.trace.acked_unix_ms
    send = tree.add(
        f"send {ended.request_topic}",
        sent_unix_ms,
        ended.done_unix_ms if acked is None else acked,
        process=root.process,
        parent=root,
        kind="producer",
        attributes={
            **topic_attributes(ended.request_topic, _pair(ended.place)),
            names.MESSAGING_OPERATION_NAME: "send",
            names.MESSAGING_OPERATION_TYPE: "send",
        },
        error="" if acked is not None else "not acknowledged",
    )
    assert send.span_id == ended.trace.send_id, "the workers link their spans to this id"


def _add_worker(tree: SpanTree, ended: KeptTrace, root: Span) -> None:
    trace, half = ended.trace, ended.trace.worker
    assert half is not None, "the caller checked this"
    sent = ended.received_unix_ms if trace.sent_unix_ms is None else trace.sent_unix_ms
    shift = clock_shift_ms(half.times, sent, half.heard_unix_ms)
    times = shifted(half.times, shift)
    half = replace(half, times=times)
    attributes: dict[str, Attribute] = {names.CLOCK_SHIFT_MS: round(shift, 3)} if shift else {}
    if times.ended_unix_ms > ended.done_unix_ms:
        attributes[names.OVERRUN_MS] = round(times.ended_unix_ms - ended.done_unix_ms, 3)
    topic = topic_attributes(ended.request_topic, _pair(ended.place))
    if trace.adopted is None:
        tree.add(
            f"wait {ended.request_topic}",
            min(sent if trace.acked_unix_ms is None else trace.acked_unix_ms, times.arrived_unix_ms),
            times.arrived_unix_ms,
            process=root.process,
            parent=root,
            attributes=topic,
        )
    process = add_worker_spans(tree, half, parent=root, topic=topic, links=[trace.send_id], attributes=attributes)
    tree.add(
        f"send {ended.reply_topic}",
        times.ended_unix_ms,
        half.heard_unix_ms,
        process=process.process,
        parent=root,
        kind="producer",
        attributes={
            **topic_attributes(ended.reply_topic, None),
            names.MESSAGING_OPERATION_NAME: "send",
            names.MESSAGING_OPERATION_TYPE: "send",
        },
    )


def _pair(place: Place | None) -> tuple[int, int] | None:
    return None if place is None else (place.partition, place.offset)
