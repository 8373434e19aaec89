"""Another service that asks a trace's requests: each at its time, whatever became of those before, over Kafka alone."""

import asyncio
from collections.abc import Callable, Sequence

from shared.kafka import Outgoing, PartitionReader, Producer
from shared.process.clock import now_unix_ms
from shared.records.requests import Defaults, request_headers, settle
from shared.settings import Settings
from shared.wire.codec import decode_reply, msgpack_encode
from shared.wire.messages import ChatRequest
from shared.wire.topics import session_key
from tests.bench.policies.outcome import LiveAnswer
from tests.bench.policies.trace import Script

_CLIENT = "replyline-bench"
_LEAD_MS = 500.0
_AFTER_MS = 2_000.0
_READ_MS = 200


async def ask_all(settings: Settings, script: Script, tell: Callable[[int], None]) -> list[LiveAnswer]:
    """Ask every request of the script, and hear the answers until all have come or 2 s after the last deadline.

    `settings.kafka` names the broker. `tell` hears how many have been answered. Raises `BrokerUnavailable`.
    """
    kafka = settings.kafka
    producer = Producer(kafka, client_id=_CLIENT)
    reader = PartitionReader(kafka, client_id=_CLIENT, topic=kafka.topics.external_replies)
    await producer.start()
    await reader.start()
    start_unix_ms = now_unix_ms() + _LEAD_MS
    answers = [
        LiveAnswer(request=request, due_unix_ms=start_unix_ms + request.arrival_ms) for request in script.trace.requests
    ]
    hearing = asyncio.create_task(_hear(reader, answers, tell))
    try:
        await _ask(producer, _records(settings, script, answers), answers)
        end_unix_ms = max(answer.deadline_unix_ms for answer in answers) + _AFTER_MS
        done, _ = await asyncio.wait({hearing}, timeout=max(0.0, end_unix_ms - now_unix_ms()) / 1_000)
        for task in done:
            task.result()
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        await reader.stop()
        await producer.stop()
    return answers


def _records(settings: Settings, script: Script, answers: Sequence[LiveAnswer]) -> list[Outgoing]:
    """Made before the first is due, so that the load costs little while it runs."""
    defaults, topics = Defaults.of(settings), settings.kafka.topics
    records: list[Outgoing] = []
    for index, (answer, text) in enumerate(zip(answers, script.texts, strict=True)):
        due = int(answer.due_unix_ms)
        request = ChatRequest(
            id=str(index),
            session_id=f"bench-{index}",
            input=text,
            tenant=answer.request.tenant,
            max_output_tokens=answer.request.max_output_tokens,
            created_unix_ms=due,
            deadline_unix_ms=answer.deadline_unix_ms,
            first_token_unix_ms=answer.first_token_unix_ms,
            reply_topic=topics.external_replies,
        )
        order = settle(request, defaults, due)
        records.append(
            Outgoing(
                topics.requests(answer.request.bucket),
                msgpack_encode(request),
                key=session_key(order.tenant, request.session_id),
                headers=request_headers(order, source=_CLIENT),
            )
        )
    return records


async def _ask(producer: Producer, records: Sequence[Outgoing], answers: Sequence[LiveAnswer]) -> None:
    """Each when it is due; returns when the broker has them all. Raises `BrokerUnavailable`."""
    deliveries: list[asyncio.Future[object]] = []
    for record, answer in zip(records, answers, strict=True):
        if (wait_ms := answer.due_unix_ms - now_unix_ms()) > 0:
            await asyncio.sleep(wait_ms / 1_000)
        deliveries.append(await producer.enqueue(record))
        answer.sent_unix_ms = now_unix_ms()
    await asyncio.gather(*deliveries)


async def _hear(reader: PartitionReader, answers: Sequence[LiveAnswer], tell: Callable[[int], None]) -> None:
    """Until all are answered."""
    num_done = 0
    while num_done < len(answers):
        records = await reader.read(timeout_ms=_READ_MS)
        now = now_unix_ms()
        for record in records:
            reply = decode_reply(record.value)
            answer = answers[int(reply.request_id)]
            was_done = answer.done is not None
            answer.take(reply, now)
            num_done += answer.done is not None and not was_done
        tell(num_done)
