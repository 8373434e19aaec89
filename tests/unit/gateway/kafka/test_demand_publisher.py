"""A gateway's report has the data that a rollout's controller needs."""

import asyncio
from typing import Any

import pytest

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.breaker import BreakerState
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from gateway.kafka.demand_publisher import DemandPublisher
from shared.kafka import Outgoing
from shared.versions.state import Rung
from shared.wire.codec import decode_demand
from shared.wire.lanes import Lane
from shared.wire.scaling import DemandReport


class Published(Exception):  # noqa: N818 - it ends the publisher after one report
    """The report that was published."""


async def reported(admissions: LaneAdmissions, ladder: Ladder) -> DemandReport:
    class RecordingProducer:
        async def publish(self, record: Outgoing) -> None:
            raise Published(decode_demand(record.value))

    producer: Any = RecordingProducer()
    publisher = DemandPublisher(
        producer=producer,
        topic="chat.demand",
        gateway_id="g",
        admissions=admissions,
        ladder=ladder,
        epoch=lambda: 7,
        since_unix_ms=0,
    )
    with pytest.raises(Published) as published:
        await asyncio.wait_for(publisher.run(), 10)
    found: DemandReport = published.value.args[0]
    return found


async def test_a_healthy_gateway_reports_its_epoch_and_the_champions_rung() -> None:
    found = await reported(LaneAdmissions(AdmissionPolicy()), Ladder())
    assert (found.epoch, found.rung, found.breakers) == (7, "champion", ())


@pytest.mark.parametrize("lane", ["champion", "canary", "control", "light", "cpu"])
@pytest.mark.parametrize("state", list(BreakerState))
async def test_each_lane_with_an_open_breaker_is_reported(lane: Lane, state: BreakerState) -> None:
    admissions = LaneAdmissions(AdmissionPolicy())
    admissions.of(lane).breaker.state = state
    found = await reported(admissions, Ladder())
    assert found.breakers == ((lane,) if state is BreakerState.OPEN else ())


@pytest.mark.parametrize("rung", ["champion", "light", "cpu", "faq"])
async def test_the_rung_that_requests_begin_on_is_reported(rung: Rung) -> None:
    assert (await reported(LaneAdmissions(AdmissionPolicy()), Ladder(hold=rung))).rung == rung
