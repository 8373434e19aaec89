"""The menu of faults is whole: what is done, what must hold, whom it wakes, what it lacks here."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from shared.errors import SettingsError
from tests.chaos.drill import DrillOptions
from tests.chaos.drill_table import DrillReport, DrillRow, table
from tests.chaos.faults.menu import MENU, Dish, Tool
from tests.chaos.faults.schedule import INSIDE, Kind
from tests.chaos.listing import listed, show
from tests.chaos.run import ChaosOptions

ROOT = Path(__file__).parents[4]
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "ops/alerts/rules.yml").read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def test_every_fault_is_on_the_menu_once() -> None:
    assert sorted(dish.kind for dish in MENU) == sorted(Kind)


@pytest.mark.parametrize("dish", MENU, ids=lambda dish: dish.kind.value)
def test_a_fault_names_its_alert_and_where_to_read_on_or_why_it_wakes_nobody(dish: Dish) -> None:
    """The alert is one of the rules, and the runbook's section is the rule's own."""
    assert dish.does
    assert dish.holds
    if dish.alert is None:
        assert dish.quiet
        assert dish.runbook is None
    else:
        assert not dish.quiet
        assert dish.runbook == RULES[dish.alert]["annotations"]["runbook_url"]


def test_what_stands_between_the_processes_and_one_broker_says_so() -> None:
    assert {dish.kind for dish in MENU if dish.one_broker} == set(INSIDE)


def test_the_list_says_what_is_missing_here_and_what_to_type() -> None:
    """Once: all of them miss the same."""
    lacks = f"missing here. Type: {Tool.REDIS.value}"
    faults = listed(lacks)
    assert {one.lacks for one in faults} == {lacks}
    shown = io.StringIO()
    show(faults, Console(file=shown, width=160))
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert [line for line in lines if "Type:" in line] == [lines[-1]] == [lacks]
    assert any("alert: TrafficSurge, docs/runbooks/traffic.md#trafficsurge" in line for line in lines)
    assert any("no alert: it is the customers' own way" in line for line in lines)


def test_where_nothing_is_missing_the_list_says_that_too() -> None:
    shown = io.StringIO()
    show(listed(None), Console(file=shown, width=160))
    assert "All of them can be had on this machine" in shown.getvalue()


# --- the alerts' drill


def drill(faults: str | None) -> DrillOptions:
    return DrillOptions(seed=1, faults=faults, json_path=None)


@pytest.fixture
def all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus is installed."""
    monkeypatch.setattr("tests.chaos.drill.lacking", lambda *_: None)


@pytest.mark.usefixtures("all_there")
def test_every_fault_that_wakes_somebody_is_tried_and_bursts_last() -> None:
    """What a surge is goes by the minutes before it."""
    plan = drill(None).plan()
    assert set(plan) == {dish.kind for dish in MENU if dish.alert is not None}
    assert plan[-1] is Kind.BURST
    assert drill("burst, noise").plan() == (Kind.NOISE, Kind.BURST)


@pytest.mark.usefixtures("all_there")
@pytest.mark.parametrize("faults", ["cut", "roll", "printer", "", "noise=1", "worker,"])
def test_what_wakes_nobody_cannot_be_asked_for_there(faults: str) -> None:
    if faults == "worker,":
        assert drill(faults).plan() == (Kind.WORKER,)
        return
    with pytest.raises(SettingsError, match="write faults that wake somebody"):
        drill(faults).plan()


def test_without_prometheus_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(SettingsError, match=r"Prometheus is missing here\. Type: apt-get install .*prometheus"):
        drill("worker").plan()


def test_an_alert_in_time_holds_and_one_that_is_late_or_silent_does_not() -> None:
    def row(fired_s: float | None) -> DrillRow:
        return DrillRow(fault="noise", alert="DeadLetters", fired_s=fired_s, others={"Rebalancing": 7.5})

    assert row(60.0).holds
    assert not row(60.1).holds
    assert not row(None).holds
    machine: Any = None
    shown = table(DrillReport(holds=False, faults=[row(12.5), row(None)], environment=machine)).splitlines()
    assert shown[2] == "| noise | DeadLetters | 12.50 | Rebalancing 8 s |"
    assert shown[3].startswith("| noise | DeadLetters | – |")


# --- what a run may ask for


def options(**changed: Any) -> ChaosOptions:
    usual = {"seed": 1, "minutes": 2.0, "rate": 20.0, "clients": 40, "brokers": 1, "faults": None, "json_path": None}
    return ChaosOptions(**{**usual, **changed})


@pytest.mark.parametrize("kind", INSIDE)
def test_a_fault_between_the_processes_and_three_brokers_is_refused_with_the_remedy(kind: Kind) -> None:
    with pytest.raises(SettingsError, match=rf"--faults {kind} with --brokers 3: .*leave out --brokers"):
        options(brokers=3, faults=f"{kind}=1").plan()


def test_on_one_broker_every_fault_may_be_asked_for() -> None:
    plan = options(minutes=4.0, faults=",".join(f"{kind}=1" for kind in Kind)).plan()
    assert {fault.kind for fault in plan} == set(Kind)
