"""Grafana's dashboards: `boards.yml` says what they show, `python -m ops.dashboards` makes them."""
