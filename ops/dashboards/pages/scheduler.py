"""Whom does it serve, whom does it give up, and is it right about what that costs?"""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import highest, mean, per_second, quantile, total
from shared.telemetry import metrics

_OWN = 'kind=~"schedule|complete"'

SCHEDULER = Page(
    "scheduler",
    "scheduler",
    (
        panel(
            "Waiting, by worker",
            "Good: near nothing, alike at all. One alone: its partitions have more than their share.",
            "short",
            (total(metrics.waiting, "instance", where='job="worker"'), "{{instance}}"),
        ),
        panel(
            "Slots in use, by worker",
            "Good: below the number of slots most of the time, alike at all.",
            "short",
            (total(metrics.slots_used, "instance", where='job="worker"'), "{{instance}}"),
            (highest(metrics.slots), "slots of one"),
        ),
        panel(
            "Rows of a decode step",
            "Good: as many as wait to be decoded. Few rows with many waiting: prefill holds them up.",
            "short",
            (mean(metrics.batch_rows), "mean"),
            (quantile(0.99, metrics.batch_rows), "P99"),
        ),
        panel(
            "The scheduler's own time of a step",
            "Good: P99 under a millisecond. More: very many wait.",
            "s",
            (quantile(0.5, metrics.step_time, "kind", where=_OWN), "P50 {{kind}}"),
            (quantile(0.99, metrics.step_time, "kind", where=_OWN), "P99 {{kind}}"),
        ),
        panel(
            "Actual by predicted time of a call",
            "Good: 0.9 to 1.1. Over 1.5 or under 0.7 plans and promises are wrong: other work on the machine, or heat.",
            "short",
            (quantile(0.5, metrics.cost_ratio, "kind"), "P50 {{kind}}"),
            (quantile(0.95, metrics.cost_ratio, "kind"), "P95 {{kind}}"),
        ),
        panel(
            "How requests end",
            "Good: stop and max_output_tokens. infeasible: given up for others; deadline: cut.",
            "reqps",
            (per_second(metrics.served, "reason"), "{{reason}}"),
            stacked=True,
        ),
        panel(
            "Begun too late",
            "Good: none. One that is begun after its first token was due is work for nobody.",
            "reqps",
            (per_second(metrics.begun_late), "begun late"),
        ),
        panel(
            "Intake rests",
            "Good: 0. At 1 for long: more than can be read ahead waits at the broker; see consumer lag.",
            "bool",
            (highest(metrics.partitions_paused, "instance", where='job="worker"'), "{{instance}}"),
        ),
        panel(
            "In another bucket than their length's",
            "Good: none. A producer that counts tokens otherwise; they are served all the same.",
            "reqps",
            (per_second(metrics.wrong_bucket), "wrong bucket"),
        ),
        panel(
            "Requests with a wrong clock",
            "Good: none. Producers' clocks ahead or behind by over a second; see docs/deadlines.md.",
            "reqps",
            (per_second(metrics.clock_skewed), "clock off"),
        ),
        panel(
            "Cancels kept for two minutes",
            "Good: below 1,000,000 a worker; none forgotten before, whose requests are computed for nobody.",
            "short",
            (highest(metrics.cancels_remembered, "instance"), "{{instance}}"),
            (per_second(metrics.cancels_forgotten), "forgotten a second"),
        ),
        panel(
            "Consumer lag",
            "Good: a few records. Rising: more comes than is served.",
            "short",
            (total(metrics.consumer_lag, "bucket"), "{{bucket}}"),
        ),
    ),
)
