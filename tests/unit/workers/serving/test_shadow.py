"""A shadow's answer is compared with the live one and goes nowhere else: to no reader, no history, no dead letter."""

import asyncio
from typing import Any, get_args

import pytest

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.model.tokenizer import Tokenizer
from shared.process.clock import now_unix_ms
from shared.telemetry import metrics
from shared.wire.codec import decode_observation
from shared.wire.outcome import Source
from shared.wire.reports import Observation
from shared.wire.shadow import LiveAnswer
from tests.support.builders.wire import done
from tests.support.builders.worker import REVISION, SHORT, TOPIC, TOPICS, Bench
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import quiet
from workers.serving.shadow import NoLetters, NoReplies, Shadow

LIVE = LiveAnswer(request_id="r0", revision="old", output_text="aab", ttft_ms=20.0, total_ms=90.0)


def shadow_bench(producer: Any = None) -> tuple[Bench, FakeProducer]:
    producer = producer or FakeProducer()
    encode = Tokenizer.byte_level().encode_text
    publisher: Any = NoReplies()
    return Bench(
        publisher=publisher, shadow=Shadow(producer=producer, topics=TOPICS, encode=lambda _: encode)
    ), producer


def observed(producer: FakeProducer) -> list[Observation]:
    assert {record.topic for record in producer.published} <= {TOPICS.observations}
    return [decode_observation(record.value) for record in producer.of(TOPICS.observations)]


async def test_an_answer_is_compared_and_written_nowhere() -> None:
    bench, producer = shadow_bench()
    before = metrics.shadows.labels("other")._value.get(), metrics.outcomes.labels("kept")._value.get()
    job = bench.accept(0, answered=LIVE, epoch=7)
    bench.run()
    await quiet()
    [seen] = observed(producer)
    assert (seen.lane, seen.response_id, seen.revision, seen.epoch) == ("shadow", "r0", REVISION, 7)
    assert (seen.conversation, seen.failed, seen.missed) == (job.session.digest, False, False)
    told = seen.compared
    assert told is not None
    assert (told.equal, told.live_revision, told.live_ttft_ms) == (False, "old", 20.0)
    assert told.same_chars == told.same_tokens == 2 / 3
    assert told.total_ms is not None
    assert seen.ttft_ms is not None
    assert bench.history.turns == []
    assert bench.offsets.committable() == {TOPIC: 1}, "its record is done without a reader"
    assert bench.worker.idle
    assert metrics.shadows.labels("other")._value.get() == before[0] + 1
    assert metrics.outcomes.labels("kept")._value.get() == before[1], "no customer was promised anything"


async def test_an_answer_that_comes_too_late_is_compared_with_nothing() -> None:
    bench, producer = shadow_bench()
    now = int(now_unix_ms())
    bench.accept(0, decided=True, answered=LIVE, created_unix_ms=now - 5_000, deadline_unix_ms=now - 1)
    await quiet()
    [seen] = observed(producer)
    assert (seen.missed, seen.compared, seen.ttft_ms) == (True, None, None)


@pytest.mark.parametrize("source", get_args(Source))
def test_an_answer_that_claims_nothing_counts_as_unsure(source: Source) -> None:
    shadow = Shadow(producer=FakeProducer(), topics=TOPICS, encode=lambda _: Tokenizer.byte_level().encode_text)
    job = Bench(shadow=shadow).accept(0, answered=LIVE)
    seen = shadow.observe(job, done(source=source), now_unix_ms())
    assert seen.unsure == (source in {"quote", "unsure"})


@pytest.mark.parametrize("erased", [True, False])
async def test_an_erased_answer_and_one_without_a_live_one_leave_no_trace(erased: bool) -> None:
    bench, producer = shadow_bench()
    bench.accept(0, **({"answered": LIVE} if erased else {}))
    if erased:
        bench.erase()
    bench.run()
    await quiet()
    assert (observed(producer), bench.history.turns) == ([], [])
    assert bench.offsets.committable() == {TOPIC: 1}


class AwayProducer(FakeProducer):
    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        raise BrokerUnavailable(f"no {record.topic}")


async def test_an_observation_that_kafka_does_not_take_holds_nothing_up() -> None:
    bench, _ = shadow_bench(AwayProducer())
    bench.accept(0, answered=LIVE)
    bench.run()
    await quiet()
    assert bench.offsets.committable() == {TOPIC: 1}
    assert bench.shadow is not None
    await bench.shadow.stop()


async def test_a_record_that_cannot_be_read_is_dropped_without_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    record = Record(SHORT, 0, 3, b"demo/s", b"my secret")
    await NoLetters().put(record, ProtocolError("bad_msgpack", "my secret"))
    told = capsys.readouterr().out
    assert "chat.requests.short/0/3" in told
    assert "my secret" not in told
