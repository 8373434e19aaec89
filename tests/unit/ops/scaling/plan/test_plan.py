"""How many of everything a forecast needs: the formulas against known cases, the sizes against their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ops.cli import app
from ops.scaling.plan.forecast import make_plan
from ops.scaling.plan.limits import curve, limits
from ops.scaling.plan.options import PlanOptions
from ops.scaling.plan.queueing import erlang_c, fewest_servers, wait_s
from ops.scaling.plan.report import Result
from ops.scaling.plan.sizes import Demand, Plan, Prices, Sizing
from ops.scaling.plan.worker_rate import Mix
from ops.traces.costs import read_costs
from ops.virtual_worker.experiment import Experiment
from shared.errors import SettingsError
from shared.settings import Settings

rates = st.floats(0.01, 500)
MIX = Mix(
    kind="poisson", prompt_tokens=100, output_tokens=40, service_s=2.0, variation=0.5, alone_s=0.3, capacity_per_s=10.0
)


def planned(per_s: float = 100.0, chats: int = 4_000, kept: float = 1_000.0, **changes: object) -> Plan:
    options = {
        "worker_per_s": 8.0,
        "headroom": 0.3,
        "reply_interval_ms": 50.0,
        "max_connections": 10_000,
        "session_bytes": 2.0**20,
        "prices": Prices(),
    }
    demand = Demand(per_s=per_s, chats=chats, kept=kept)
    return Sizing(demand=demand, mix=MIX, **(options | changes)).plan()


def sized(per_s: float) -> tuple[Plan, int]:
    """Forty seconds of thought between two questions."""
    chats = round(40 * per_s)
    return planned(per_s, chats), chats


# --- formulas


def test_erlang_c_as_it_stands_in_the_tables() -> None:
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=1e-4)


@given(st.floats(0.01, 100), st.floats(0.05, 3), st.floats(0, 2), st.floats(0, 5))
def test_the_fewest_servers_do_and_one_less_does_not(
    per_s: float, service_s: float, variation: float, within_s: float
) -> None:
    servers = fewest_servers(per_s, service_s, variation, within_s=within_s, share=0.95)
    assert wait_s(servers, per_s, service_s, variation, 0.95) <= within_s
    assert servers == 1 or wait_s(servers - 1, per_s, service_s, variation, 0.95) > within_s


# --- sizes


@given(st.floats(0.1, 1e5), st.floats(1, 8))
def test_more_questions_need_no_less_of_anything(per_s: float, times: float) -> None:
    less, more = planned(per_s), planned(per_s * times)
    assert more.workers >= less.workers
    assert more.gateways >= less.gateways
    assert more.brokers >= less.brokers
    assert more.workers * 8.0 >= more.questions_per_s - 1e-6
    assert more.partitions >= more.workers


@given(st.floats(0.1, 1e5), st.floats(0, 0.95))
def test_the_share_that_is_kept_free_is_free_at_the_peak(per_s: float, headroom: float) -> None:
    """Of what all workers carry, of the connections that all gateways take, and of Redis; and no worker is too many."""
    plan = planned(per_s, headroom=headroom)
    assert per_s <= (1 - headroom) * plan.workers * 8.0 * (1 + 1e-6)
    assert plan.workers == 1 or per_s > (1 - headroom) * (plan.workers - 1) * 8.0 * (1 - 1e-6)
    assert (1 - headroom) * plan.gateways * 10_000 * (1 + 1e-6) >= 4_000
    assert plan.redis_mib == pytest.approx(1_000 / (1 - headroom))


def test_who_is_connected_needs_gateways_however_little_is_asked() -> None:
    assert planned(per_s=10, chats=1_000_000).gateways == 143


def test_what_is_priced_is_summed_and_what_is_not_is_left_out() -> None:
    assert planned().cost_per_hour is None
    plan = planned(headroom=0.2, prices=Prices(worker=2.0, redis_gib=0.1))
    assert plan.redis_mib == pytest.approx(1_250)
    assert plan.cost_per_hour == pytest.approx(2.0 * plan.workers + 0.1 * 1_250 / 1_024)
    assert planned(session_bytes=None).redis_mib is None


# --- the whole


@pytest.fixture(scope="module")
def result() -> tuple[Result, Mix]:
    experiment = Experiment(
        slots=8,
        seconds=15,
        costs=read_costs("cpu"),
        settings=Settings(),
    )
    forecast = PlanOptions(chats=500, think_s=30, surge=2, worker_price=1.0)
    return make_plan(forecast, experiment, Settings(), lambda _done: None)


def test_the_planned_workers_meet_the_goal_and_an_overload_does_not(result: tuple[Result, Mix]) -> None:
    plan = result[0]
    assert plan.worker.attainment >= 0.95
    assert 0.3 < plan.worker.per_s / result[1].capacity_per_s <= 1.0
    assert plan.demand.per_s == pytest.approx(2 * 500 / (30 + result[1].service_s), rel=1e-6)
    at_peak, *_, far_beyond = plan.what_if
    assert at_peak.attainment_as_planned >= 0.95
    assert far_beyond.attainment_as_planned < 0.9
    assert far_beyond.workers > at_peak.workers


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--chats"),
        (["--chats", "10", "--rate", "5"], "one of them"),
        (["--rate", "5", "--costs", "nowhere"], "nowhere"),
        (["--rate", "5", "--json", "/no/such/folder/plan.json"], "is not a directory"),
        (["--rate", "5", "--profile", "gpu", "--seconds", "10"], "alone an answer "),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_a_line(arguments: list[str], told: str) -> None:
    failed = CliRunner().invoke(app, ["plan", *arguments])
    assert isinstance(failed.exception, SettingsError)
    assert told in str(failed.exception)
    assert "\n" not in str(failed.exception)


# --- limits


def test_what_is_reached_first_comes_first_and_one_more_worker_is_too_many() -> None:
    settings = Settings.model_validate({"kafka": {"request_partitions": 12, "reply_partitions": 2}})
    found = limits(sized, 5.6, settings)
    assert [limit.workers for limit in found] == sorted(limit.workers or 0 for limit in found)
    assert (found[0].workers, found[0].per_s) == (12, pytest.approx(67.2))
    replies = next(limit for limit in found if "REPLY_PARTITIONS" in limit.what)
    assert replies.workers is not None
    assert sized(replies.workers * 5.6)[0].gateways <= 2 < sized((replies.workers + 1) * 5.6)[0].gateways
    connections = next(limit for limit in found if "connections" in limit.what)
    assert connections.chats is not None
    assert connections.chats <= 100_000 < sized(((connections.workers or 0) + 1) * 5.6)[1]


def test_the_curve_grows_with_the_workers() -> None:
    rows = curve(sized, 5.6, (1, 10, 100))
    assert [row.per_s for row in rows] == pytest.approx([5.6, 56, 560])
    assert [row.gateways for row in rows] == sorted(row.gateways for row in rows)
    assert rows[-1].chats == 22_400
