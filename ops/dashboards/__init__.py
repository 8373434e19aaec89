"""Grafana's dashboards. `boards.yml` defines them, `python -m ops.dashboards` generates them."""
