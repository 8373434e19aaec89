"""Convert a worker's recorded times to spans. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from shared.tracing import conventions as names
from shared.tracing.spans import Attribute, Attributes, Span, SpanProcess, SpanTree
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Reason, Status, Usage, WorkerTimes

PROVIDER = "replyline"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHalf:
    """A worker's report of an ended request, without the text. `heard_unix_ms` is the receipt by the receiver's
    clock."""

    times: WorkerTimes
    status: Status
    reason: Reason
    model: str | None
    usage: Usage
    heard_unix_ms: float

    @classmethod
    def from_reply(cls, done: ReplyDone, heard_unix_ms: float, *, clock_ms: int = 0) -> "WorkerHalf | None":
        """Return the worker's half; None if the worker recorded no times.

        Args:
            done: the terminal event; its times are in the wire's time.
            heard_unix_ms: when it was received.
            clock_ms: how far the wire's time is ahead of the receiver's.
        """
        if done.times is None:
            return None
        return cls(
            times=shifted(done.times, -clock_ms),
            status=done.status,
            reason=done.reason,
            model=done.model,
            usage=done.usage,
            heard_unix_ms=heard_unix_ms,
        )


def clock_shift_ms(times: WorkerTimes, earliest_unix_ms: float, latest_unix_ms: float) -> float:
    """Return the shift that moves a worker's times between the sending of its request and the receipt of its end.

    It is 0 if they already are, or if no shift helps.
    """
    too_early = earliest_unix_ms - times.arrived_unix_ms
    too_late = times.ended_unix_ms - latest_unix_ms
    if too_early > 0:
        return too_early
    return -too_late if too_late > 0 else 0.0


def shifted(times: WorkerTimes, shift_ms: float) -> WorkerTimes:
    """Return the times, shifted."""
    if not shift_ms:
        return times

    moved = {
        name: value + shift_ms for name, value in msgspec.structs.asdict(times).items() if isinstance(value, float)
    }
    prefilled = tuple(end + shift_ms for end in times.prefilled_unix_ms)
    return msgspec.structs.replace(times, **moved, prefilled_unix_ms=prefilled)


def add_worker_spans(
    tree: SpanTree,
    half: WorkerHalf,
    *,
    parent: Span,
    topic: Attributes,
    links: Sequence[int],
    attributes: Attributes,
) -> Span:
    """Add the spans process → prepare (KV), queue, inference (prefill by chunks, decode). `topic` says where the
    request was."""
    times, process = half.times, SpanProcess("worker", half.times.worker_id)
    whole = tree.add(
        f"process {topic[names.MESSAGING_DESTINATION_NAME]}",
        times.arrived_unix_ms,
        times.ended_unix_ms,
        process=process,
        parent=parent,
        kind="consumer",
        attributes={
            **topic,
            names.MESSAGING_OPERATION_NAME: "process",
            names.MESSAGING_OPERATION_TYPE: "process",
            names.STATUS: half.status,
            names.REASON: half.reason,
            **attributes,
        },
        links=links,
        error="the engine failed" if half.status == "failed" else "",
    )
    prepare = tree.add(
        "prepare",
        times.arrived_unix_ms,
        times.ready_unix_ms,
        process=process,
        parent=whole,
        attributes={names.TURNS_MISSING: True} if times.turns_missing else {},
    )
    if times.kv_asked_unix_ms is not None and times.kv_found_unix_ms is not None:
        tree.add("restore kv", times.kv_asked_unix_ms, times.kv_found_unix_ms, process=process, parent=prepare)
    started = times.started_unix_ms
    waited = times.ended_unix_ms if started is None else started
    tree.add("queue", times.ready_unix_ms, waited, process=process, parent=whole)
    if started is not None:
        _add_inference(tree, half, started, whole)
    return whole


def _add_inference(tree: SpanTree, half: WorkerHalf, started_unix_ms: float, whole: Span) -> None:
    times, process = half.times, whole.process
    inference = tree.add(
        f"chat {half.model}" if half.model else "chat",
        started_unix_ms,
        times.ended_unix_ms,
        process=process,
        parent=whole,
        attributes=_inference_attributes(half),
    )
    first = times.first_token_unix_ms
    prefill = tree.add(
        "prefill",
        started_unix_ms,
        times.ended_unix_ms if first is None else first,
        process=process,
        parent=inference,
        attributes={
            names.GEN_AI_USAGE_INPUT_TOKENS: half.usage.input_tokens,
            names.CACHED_TOKENS: half.usage.cached_tokens,
        },
    )
    start = started_unix_ms
    for number, end in enumerate(times.prefilled_unix_ms):
        tree.add("prefill chunk", start, end, process=process, parent=prefill, attributes={names.CHUNK: number})
        start = end
    if first is not None:
        tree.add(
            "decode",
            first,
            times.ended_unix_ms,
            process=process,
            parent=inference,
            attributes={names.GEN_AI_USAGE_OUTPUT_TOKENS: half.usage.output_tokens},
        )


def _inference_attributes(half: WorkerHalf) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {
        names.GEN_AI_OPERATION_NAME: "chat",
        names.GEN_AI_PROVIDER_NAME: PROVIDER,
        names.GEN_AI_USAGE_INPUT_TOKENS: half.usage.input_tokens,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: half.usage.output_tokens,
        names.GEN_AI_RESPONSE_FINISH_REASONS: (half.reason,),
    }
    if half.model is not None:
        attributes[names.GEN_AI_REQUEST_MODEL] = half.model
    return attributes


def topic_attributes(topic: str, place: tuple[int, int] | None) -> dict[str, Attribute]:
    """Return the attributes of a record in Kafka; `place` is its partition and offset, None if unknown."""
    attributes: dict[str, Attribute] = {names.MESSAGING_SYSTEM: "kafka", names.MESSAGING_DESTINATION_NAME: topic}
    if place is not None:
        attributes[names.MESSAGING_DESTINATION_PARTITION_ID] = str(place[0])
        attributes[names.MESSAGING_KAFKA_OFFSET] = place[1]
    return attributes
