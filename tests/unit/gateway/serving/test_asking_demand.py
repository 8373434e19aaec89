"""Demand is counted before admission, as work, for every source of the answer."""

from gateway.destination.destination import TO_CHAMPION, Destination
from shared.process.clock import now_unix_ms
from shared.wire.lanes import CHAMPION
from shared.wire.messages import ResponseCreate, SessionStart
from shared.wire.scaling import BucketDemand
from tests.support.builders.gateway import report
from tests.support.fakes.gateways import Edge, quiet


async def asked_of(first_token_ms: float, *, light: bool = False) -> Edge:
    """Return a gateway, asked three times, with two workers that predict this; each gets one probe."""
    edge = Edge(admits=True)
    now = int(now_unix_ms())
    gate = edge.serving.admission_gate
    gate.update_worker("w1", report("w1", first_token_ms=first_token_ms, service_ms=40.0, unix_ms=now))
    gate.update_worker("w2", report("w2", first_token_ms=first_token_ms, service_ms=60.0, unix_ms=now))
    if light:
        gate.update_worker("w3", report("w3", lane="light", service_ms=10.0, unix_ms=now))
    connection = await edge.connect().say(SessionStart(session_id="s"))
    for number in range(3):
        await connection.say(ResponseCreate(event_id=f"e{number}", input="How long?"))
        await quiet()
    return edge


async def test_requests_are_priced_by_the_mean_of_the_lanes_workers() -> None:
    edge = await asked_of(10.0)
    demand = edge.serving.admission_gate.admissions.demand
    assert demand.asked() == {CHAMPION: {"short": BucketDemand(3, 150.0)}}


async def test_rejected_requests_count_towards_demand() -> None:
    edge = await asked_of(1e6)
    demand = edge.serving.admission_gate.admissions.demand
    assert demand.asked() == {CHAMPION: {"short": BucketDemand(3, 150.0, turned_away=1, judged=1)}}


async def test_a_lane_that_takes_over_a_request_gets_its_demand() -> None:
    edge = await asked_of(1e6, light=True)
    asked = edge.serving.admission_gate.admissions.demand.asked()
    assert asked == {
        CHAMPION: {"short": BucketDemand(3, 150.0, turned_away=1, judged=1)},
        "light": {"short": BucketDemand(1, 10.0)},
    }


async def test_the_last_price_stays_without_workers_and_is_replaced_by_a_new_one() -> None:
    edge = await asked_of(10.0)
    admissions = edge.serving.admission_gate.admissions
    assert sorted(admissions.expire(now_unix_ms() + 60_000)) == ["w1", "w2"]
    admissions.price()
    assert admissions.demand.ask(TO_CHAMPION) == 50.0
    edge.serving.admission_gate.update_worker("w4", report("w4", service_ms=70.0))
    assert admissions.demand.ask(TO_CHAMPION) == 70.0
    assert admissions.demand.ask(Destination("canary")) == 0.0, "nothing is known of its workers"
