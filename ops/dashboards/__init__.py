"""Grafana's dashboards, made from the metrics as `shared.telemetry.metrics` declares them: `python -m
ops.dashboards`."""
