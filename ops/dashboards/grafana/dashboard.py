"""A page as Grafana's dashboard model, pinned to one version of its schema.

https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

import json
from typing import Any, Final

from ops.dashboards.grafana.panels import Page, Panel

SCHEMA_VERSION: Final = 39  # of Grafana 11
_COLUMNS: Final = 3
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's names where they are not ours.
_UNITS: Final = {"cores": "short"}


def render(page: Page) -> str:
    """The file's text: sorted, indented, ends with a newline."""
    return json.dumps(dashboard(page), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def dashboard(page: Page) -> dict[str, Any]:
    return {
        "uid": f"replyline-{page.name}",
        "title": f"Replyline · {page.title}",
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
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
            ]
        },
        "annotations": {"list": []},
        "panels": [_panel(number, item) for number, item in enumerate(page.panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.good,
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
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
