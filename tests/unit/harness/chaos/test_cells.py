"""The network's faults: which on which hop, when, what they do to a proxy, and when a cell has shown something."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.measure.environment import Environment
from ops.stack.processes import free_port
from shared.errors import SettingsError
from shared.wire.messages import Response, ResponseCreated, ResponseDelta, ResponseDone, Timings, Usage
from tests.chaos.faults.cells import ALL, Cell, Hop, load_s, parse_cells, pulses
from tests.chaos.faults.schedule import NETWORK, Kind
from tests.chaos.hops.proxy import Proxy
from tests.chaos.hops.weather import Weather
from tests.chaos.ledger.questions import make_questions
from tests.chaos.ledger.requests import Ledger
from tests.chaos.ledger.rights import Oracle
from tests.chaos.ledger.verdict import GRACE_S, Rights, Verdict, judge
from tests.chaos.network import NetworkOptions
from tests.chaos.network_table import NetworkReport, Passed, row_of, table

PASSED = Passed(faults=3, cut=2, carried_bytes=9_000)


def test_there_is_a_cell_for_each_fault_on_each_hop() -> None:
    assert len(set(ALL)) == len(NETWORK) * len(Hop) == 18
    assert parse_cells(",".join(map(str, ALL))) == ALL
    assert parse_cells(" reset:kafka , latency:client,reset:kafka") == (
        Cell(Kind.RESET, Hop.KAFKA),
        Cell(Kind.LATENCY, Hop.CLIENT),
    )


@pytest.mark.parametrize("text", ["", ",", "reset", "reset:broker", "worker:kafka", "kafka:reset", "reset:kafka,x"])
def test_cells_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--cells .*: write fault:hop, comma-separated; faults: latency"):
        parse_cells(text)


@pytest.mark.parametrize("requests", [0, -1, 20_001])
def test_requests_that_cannot_be_are_refused(requests: int) -> None:
    with pytest.raises(SettingsError, match=f"--requests {requests}: must be 1 to 20000"):
        NetworkOptions(seed=1, requests=requests, cells=None, json_path=None).plan()


@given(st.sampled_from(NETWORK), st.integers(1, 20_000))
def test_each_fault_comes_while_the_load_lasts(fault: Kind, requests: int) -> None:
    """Once at the least, however short the load; over before it comes again, and before the load is."""
    duration_s = load_s(requests, rate=40.0)
    assert duration_s >= requests / 40.0
    found = pulses(fault, duration_s)
    assert found
    assert all(pulse.at_s > 0 and pulse.at_s + pulse.for_s <= duration_s + 1e-9 for pulse in found)
    assert all(before.at_s + before.for_s < after.at_s for before, after in pairwise(found))


@pytest.mark.parametrize("kind", [kind for kind in NETWORK if kind not in {Kind.RESET, Kind.SLOW_CLOSE}])
async def test_what_lasts_is_as_before_when_it_is_over(kind: Kind) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(64))
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy,
    ):
        weather = Weather(proxy)
        as_it_was = (proxy.delay_s, proxy.bytes_per_s, proxy.slice_bytes)
        weather.worsen(kind)
        assert weather.num_faults == 1
        assert kind is Kind.TIMEOUT or (proxy.delay_s, proxy.bytes_per_s, proxy.slice_bytes) != as_it_was
        weather.clear(kind)
        assert (proxy.delay_s, proxy.bytes_per_s, proxy.slice_bytes) == as_it_was
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(bytes(64))
        assert await reader.read(-1) == bytes(64)
        writer.close()
        assert proxy.carried_bytes == 128


def test_a_kill_is_no_weather() -> None:
    with pytest.raises(AssertionError, match="worker"):
        Weather(Proxy("127.0.0.1", free_port())).worsen(Kind.WORKER)


def verdict_of(*, away: bool = False, late_s: float = -1.0) -> Verdict:
    """Of one request, answered so much after its deadline; `away`: its client was not there then."""
    ledger, question = Ledger(), make_questions(1, 1, 1)[0]
    text = Oracle()(question).model
    due_s = question.deadline_ms / 1_000
    response = Response(
        id="r",
        status="incomplete",
        reason="max_output_tokens",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(total_ms=100.0),
    )
    ledger.asked(question, 0.0)
    ledger.heard(question.session, ResponseCreated(response_id="r", event_id=question.event_id, bucket="short"), 0.1)
    ledger.heard(question.session, ResponseDelta(response_id="r", seq=0, offset=0, delta=text, cursor="c"), 0.2)
    if away:
        ledger.lost(question.session, 0.3, "cut")
        ledger.opened(question.session, due_s + late_s, resumed=True, recovered=True, replayed=0)
    ledger.heard(question.session, ResponseDone(response=response, cursor="c"), due_s + late_s)
    return judge(ledger, lambda _: Rights(text, "busy"))


@pytest.mark.parametrize(
    ("hop", "away", "passed", "holds"),
    [
        (Hop.KAFKA, False, PASSED, True),
        (Hop.KAFKA, False, Passed(faults=0, cut=0, carried_bytes=9_000), False),
        (Hop.KAFKA, False, Passed(faults=3, cut=2, carried_bytes=0), False),
        (Hop.KAFKA, True, PASSED, False),
        (Hop.REDIS, True, PASSED, False),
        (Hop.CLIENT, True, PASSED, True),
    ],
    ids=["met", "no fault", "no byte", "excused before Kafka", "excused before Redis", "its own way"],
)
def test_a_cell_holds_where_its_fault_met_something_and_nobody_was_excused_without_cause(
    hop: Hop, away: bool, passed: Passed, holds: bool
) -> None:
    verdict = verdict_of(away=away, late_s=1.0 if away else -1.0)
    assert verdict.holds
    assert verdict.excused.requests == away
    assert row_of(Cell(Kind.RESET, hop), verdict, passed=passed, back_s=0.0).holds is holds


def test_the_table_says_what_was_broken_in_which_cell() -> None:
    rows = [
        row_of(Cell(Kind.TIMEOUT, Hop.KAFKA), verdict_of(late_s=GRACE_S + 0.1), passed=PASSED, back_s=0.5),
        row_of(Cell(Kind.RESET, Hop.REDIS), verdict_of(), passed=PASSED.since(Passed(1, 1, 1_000)), back_s=0.5),
    ]
    machine = Environment(
        date="", cpu="", cores=2, load_1min=0.0, system="", python="", versions={}, engine="fake", broker=""
    )
    lines = table(NetworkReport(seed=1, holds=False, cells=rows, environment=machine)).splitlines()
    assert lines[2].startswith("| timeout:kafka | 1 | 1 |")
    assert lines[2].endswith("| late 1 |")
    assert lines[3].startswith("| reset:redis | 1 | 1 |")
    assert lines[3].endswith("| 1 | 8 | none |")
