"""The dashboards are what the program makes, ask for metrics that exist."""

import json
import re
from typing import Any

import pytest

import shared.telemetry.metrics  # noqa: F401 - declares what is exposed
from ops.dashboards.__main__ import JSON_DIR, SCHEMA_VERSION, read_boards, stale
from tests.support.samples.promql import exposed_names, known_labels, labels_of, metric_names

FILES = sorted(JSON_DIR.glob("*.json"))
DASHBOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in FILES}
EXPRESSIONS = sorted(
    {target["expr"] for board in DASHBOARDS.values() for panel in board["panels"] for target in panel["targets"]}
)


def test_the_files_are_what_the_program_makes() -> None:
    """Else: python -m ops.dashboards."""
    assert stale(JSON_DIR) == []


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_an_expression_asks_only_for_what_exists(expr: str) -> None:
    assert metric_names(expr)
    assert metric_names(expr) <= exposed_names()
    assert labels_of(expr) <= known_labels(metric_names(expr)) | {"namespace", "helm_release"}


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_each_selector_asks_for_the_release_that_is_chosen(expr: str) -> None:
    """Else a board shows the sum of all releases that one Prometheus scrapes."""
    scope = '{namespace=~"$namespace",helm_release=~"$release"'
    for name in metric_names(expr):
        rest = re.split(rf"(?<![\w:]){name}(?![\w:])", expr)[1:]
        assert rest
        assert all(each.startswith(scope) for each in rest), name


def test_dashboards_and_panels_have_ids_of_their_own() -> None:
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(DASHBOARDS) == len(read_boards())
    for board in DASHBOARDS.values():
        assert board["schemaVersion"] == SCHEMA_VERSION
        numbers = [panel["id"] for panel in board["panels"]]
        assert len(set(numbers)) == len(numbers)
        places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
        assert len(set(places)) == len(places)


def test_every_panel_has_a_unit_and_says_what_good_looks_like() -> None:
    for board in DASHBOARDS.values():
        for panel in board["panels"]:
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"].startswith("Good: ")
            assert panel["targets"]
            assert all(target["legendFormat"] for target in panel["targets"])
