"""Write Grafana's dashboards, or check that they are current: `python -m ops.dashboards [--check]`.

`boards.yml` defines them. The model is pinned to one version of its schema:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

BOARDS: Final = Path(__file__).with_name("boards.yml")
JSON_DIR: Final = Path(__file__).with_name("json")
SCHEMA_VERSION: Final = 39  # of Grafana 11
_COLUMNS: Final = 3
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# The labels that the chart's PodMonitor sets. A series of docker compose has none of them, and is shown by "All".
_SCOPE: Final = {"namespace": "namespace", "release": "helm_release"}
_METRIC: Final = re.compile(r"\b((?:replyline_|infer_|process_|model:|replyline:)[\w:]+|up)\b(\{)?")
# Grafana's names where they differ from ours.
_UNITS: Final = {"cores": "short"}

Unit = Literal["s", "reqps", "cps", "percentunit", "short", "bytes", "celsius", "bool", "cores"]


class Panel(Struct, frozen=True, forbid_unknown_fields=True):
    """One chart. `good` describes its normal look, and what other looks mean. `lines` maps the legend of a line to its
    PromQL; `{{label}}` in a legend is that label's value."""

    title: str
    good: str
    unit: Unit
    lines: dict[str, str]
    stacked: bool = False


class Board(Struct, frozen=True, forbid_unknown_fields=True):
    """One dashboard. `name` is the name of its file and the end of its address."""

    name: str
    title: str
    panels: list[Panel]


def read_boards() -> list[Board]:
    return msgspec.yaml.decode(BOARDS.read_bytes(), type=list[Board])


def wanted() -> dict[str, str]:
    """Return each file's text by its name: sorted, indented, with a newline at the end."""
    return {
        f"{board.name}.json": json.dumps(_model(board), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for board in read_boards()
    }


def stale(folder: Path) -> list[str]:
    """Return the files that are missing, out of date, or no longer belong to a dashboard."""
    texts = wanted()
    here = {path.name: path.read_text() for path in folder.glob("*.json")}
    return sorted(name for name in texts.keys() | here.keys() if texts.get(name) != here.get(name))


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in stale(folder):
        (folder / name).unlink(missing_ok=True)
    for name, text in wanted().items():
        (folder / name).write_text(text)


def _model(board: Board) -> dict[str, Any]:
    return {
        "uid": f"replyline-{board.name}",
        "title": f"Replyline · {board.title}",
        "tags": ["replyline"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [{"type": "dashboards", "tags": ["replyline"], "title": "Replyline", "asDropdown": True}],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0},
                *(_variable(name, label) for name, label in _SCOPE.items()),
            ]
        },
        "annotations": {"list": []},
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def _variable(name: str, label: str) -> dict[str, Any]:
    """Return a choice among the values of a label; `.*` matches series without the label too."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _DATASOURCE,
        "query": f'label_values(up{{job=~"gateway|worker"}}, {label})',
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }


def scoped(expr: str) -> str:
    """Return the PromQL whose selectors ask for the namespace and release that are chosen."""
    scope = ",".join(f'{label}=~"${name}"' for name, label in _SCOPE.items())
    return _METRIC.sub(lambda found: f"{found[1]}{{{scope}" + ("," if found[2] else "}"), expr)


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": f"Good: {panel.good}",
        "datasource": _DATASOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": _UNITS.get(panel.unit, panel.unit),
                "min": None if panel.unit in {"s", "celsius"} else 0,
                "custom": {
                    "fillOpacity": 25 if panel.stacked else 5,
                    "lineWidth": 1,
                    "showPoints": "never",
                    "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
                },
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _DATASOURCE, "expr": scoped(expr), "legendFormat": legend}
            for index, (legend, expr) in enumerate(panel.lines.items())
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.dashboards", description="Grafana's dashboards, as JSON.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with status 1 if a file is not current"
    )
    old = stale(JSON_DIR)
    if not parser.parse_args().check:
        write(JSON_DIR)
        print(f"{len(wanted())} dashboards in {JSON_DIR}")
        return 0
    for name in old:
        print(f"{JSON_DIR / name} is not current. Type: python -m ops.dashboards", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
