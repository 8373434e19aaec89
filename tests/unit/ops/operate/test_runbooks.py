"""Each alert has a page, and every figure and command that the page names exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import shared.telemetry.metrics
from ops.dashboards.__main__ import read_boards
from shared.settings import describe
from tests.support.command_tree import replyline
from tests.support.samples.promql import OWN, exposed_names, metric_names

ROOT = Path(__file__).parents[4]
RUNBOOKS = ROOT / "docs" / "runbooks"
PAGES_OF_TEXT = sorted([*RUNBOOKS.glob("*.md"), ROOT / "docs" / "observability.md"])
ALL_RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "ops/alerts/rules.yml").read_text())["groups"] for rule in group["rules"]
]
RULES = [rule for rule in ALL_RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in ALL_RULES if "record" in rule}
TESTS: list[dict[str, Any]] = yaml.safe_load((ROOT / "ops/alerts/tests.yml").read_text())["tests"]
NAMES = [rule["alert"] for rule in RULES]
_DURATION = re.compile(r"(\d+)s")


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_wakes_or_waits_says_what_it_means_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in _anchors(ROOT / path)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_goes_by_metrics_that_exist_and_fires_within_a_minute(rule: dict[str, Any]) -> None:
    """The scrape, the evaluation and `for`; how soon its window shows the fault is for promtool to say."""
    assert metric_names(rule["expr"])
    assert metric_names(rule["expr"]) <= exposed_names() | OWN | RECORDED
    wait = _DURATION.fullmatch(rule.get("for", "0s"))
    assert wait is not None
    assert int(wait.group(1)) + 10 <= 60


@pytest.mark.parametrize("rule", [rule for rule in ALL_RULES if "record" in rule], ids=sorted(RECORDED))
def test_what_is_recorded_is_made_of_metrics_that_exist_and_used_by_an_alert(rule: dict[str, Any]) -> None:
    assert metric_names(rule["expr"]) <= exposed_names() | RECORDED - {rule["record"]}
    assert any(rule["record"] in metric_names(other["expr"]) for other in ALL_RULES)


def test_there_are_enough_rules_each_by_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 12


def test_every_rule_is_seen_quiet_and_firing() -> None:
    """A minute after its fault, and not before; and no rule fires on a night that is well."""
    fired = {
        re.findall(r'alertname="(\w+)"', sample["labels"])[0]
        for test in TESTS
        for check in test["promql_expr_test"]
        for sample in check["exp_samples"]
        if check["eval_time"] == "6m"
    }
    assert fired == set(NAMES)
    for test in TESTS:
        assert not test["promql_expr_test"][0]["exp_samples"]
    assert sum(test["name"].startswith("Nothing fires") for test in TESTS) >= 3


def test_the_series_of_the_tests_are_as_they_are_exposed() -> None:
    """A test with a series that no process writes proves nothing."""
    labels = {
        sample: set(metric._labelnames)
        for metric in vars(shared.telemetry.metrics).values()
        if hasattr(metric, "_labelnames")
        for sample in (metric._name, *(metric._name + end for end in ("_total", "_bucket", "_count", "_sum")))
    }
    for test in TESTS:
        for series in test["input_series"]:
            name, _, rest = series["series"].partition("{")
            given = set(re.findall(r"(\w+)=", rest)) - {"job", "instance", "le"}
            assert name in exposed_names() | OWN
            assert given == labels.get(name, set()), series


# --- the pages


@pytest.mark.parametrize("page", PAGES_OF_TEXT, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.is_file(), target
        assert not anchor or anchor in _anchors(file), target


@pytest.mark.parametrize("page", PAGES_OF_TEXT, ids=lambda page: page.name)
def test_metrics_settings_and_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    exposed = exposed_names()
    families = exposed | {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in exposed}
    for name in re.findall(r"\b(?:replyline|infer|process)_[a-z_]+(?![\w*])", text):
        assert name in families or any(each.startswith(name) for each in exposed), name
    settings = {variable for variable, *_ in describe()}
    assert set(re.findall(r"REPLYLINE_[A-Z_]+[A-Z]", text)) <= settings
    for name in re.findall(r"`((?:ops|tests|docs|shared)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name


def _check_command(words: list[str]) -> None:
    """Walks the command line as typed, as far as it names commands; its options must be the last one's."""
    command: Any = replyline()
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not (words and hasattr(command, "commands")), f"no such command: {words}"
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("page", PAGES_OF_TEXT, ids=lambda page: page.name)
def test_commands_that_are_to_be_typed_exist(page: Path) -> None:
    for typed in re.findall(r"`replyline ([^`]+)`", page.read_text()):
        _check_command(re.sub(r'"[^"]*"', "TEXT", typed).split())


def test_a_command_that_does_not_exist_is_found() -> None:
    _check_command(["dlq", "list"])
    with pytest.raises(AssertionError, match="no such command"):
        _check_command(["dlq", "burn"])
    with pytest.raises(AssertionError):
        _check_command(["ask", "TEXT", "--loudly"])


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.name)
def test_a_runbook_goes_by_the_clock_and_names_dashboards_that_exist(page: Path) -> None:
    text = page.read_text()
    rows = re.findall(r"^\| (\d+) minutes? \|", text, re.MULTILINE)
    assert rows == ["1", "5", "15", "30", "60"]
    titles = {board.title for board in read_boards()}
    bold = set(re.findall(r"\*\*([a-zA-Z ]+)\*\*", text)) - {"Means", "Look", "Do"}
    assert {name for name in bold if name[0].islower()} <= titles


@pytest.mark.parametrize("name", NAMES)
def test_a_section_says_what_it_means_where_to_look_and_what_to_do(name: str) -> None:
    text = "\n".join(page.read_text() for page in RUNBOOKS.glob("*.md"))
    (section,) = re.findall(rf"^## {name}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    for word in ("**Means**", "**Look**", "**Do**"):
        assert word in section
