"""Grafana's dashboards, made from the metrics as `shared.metrics` declares them: `python -m ops.dashboards`."""
