"""An end of a gateway's own stands in the log, for the gateway that its client comes back to."""

from gateway.kafka.request_publisher import RequestPublisher
from gateway.request.cursor import Place
from shared.settings import Settings
from shared.wire.codec import decode_reply
from shared.wire.failed_ends import OWN_FAULT
from shared.wire.messages import ReplyDone
from shared.wire.topics import TopicNames
from tests.support.builders.gateway import answer, make_entry
from tests.support.fakes.gateways import FakeProducer


async def test_an_end_is_logged_with_its_model_and_error() -> None:
    producer = FakeProducer()
    publisher = RequestPublisher(
        producer=producer,  # type: ignore[arg-type]
        topics=TopicNames(),
        defaults=Settings().request_defaults,
        reply_partition=1,
        source="g",
        away=lambda: False,
    )
    told = answer(text="so far", status="failed", reason="internal", model="m", error=OWN_FAULT)
    await publisher.ended(make_entry(log=Place(3, 0), response=told))
    logged = decode_reply(producer.of("chat.replies")[0].value)
    assert isinstance(logged, ReplyDone)
    assert (logged.error, logged.model, logged.output_text, logged.origin) == (OWN_FAULT, "m", "so far", "gateway")
