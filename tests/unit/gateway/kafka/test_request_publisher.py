"""Records that a gateway writes: requests with wall-clock times, and its own ends for later readers."""

from gateway.kafka.request_publisher import RequestPublisher
from gateway.request.cursor import Place
from shared.wire.codec import decode_reply, decode_request
from shared.wire.failed_ends import OWN_FAULT
from shared.wire.messages import ReplyDone, ResponseCreate
from shared.wire.topics import TopicNames
from tests.support.builders.gateway import answer, make_entry
from tests.support.fakes.gateway_services import FakeProducer


def publisher_to(producer: FakeProducer) -> RequestPublisher:
    return RequestPublisher(
        producer=producer,  # type: ignore[arg-type]
        topics=TopicNames(),
        reply_partition=1,
        source="g",
        away=lambda: False,
        next_offset=lambda: None,
    )


async def test_a_request_has_its_deadline_by_the_changed_clock() -> None:
    producer, entry = (
        FakeProducer(),
        make_entry(
            received=10_000.0, soft=10_200, hard=11_000, clock_ms=5_000, asked=ResponseCreate(event_id="e", input="hi")
        ),
    )
    await publisher_to(producer).enqueue(entry, 10_001.0)
    asked = decode_request(producer.published[0].value)
    assert (asked.created_unix_ms, asked.first_token_unix_ms, asked.deadline_unix_ms) == (15_000, 15_200, 16_000)


async def test_an_end_is_logged_with_its_model_and_error() -> None:
    producer = FakeProducer()
    told = answer(text="so far", status="failed", reason="internal", model="m", error=OWN_FAULT)
    await publisher_to(producer).publish_end(make_entry(log=Place(3, 0), response=told))
    logged = decode_reply(producer.of("chat.replies")[0].value)
    assert isinstance(logged, ReplyDone)
    assert (logged.error, logged.model, logged.output_text, logged.origin) == (OWN_FAULT, "m", "so far", "gateway")
