"""Kafka and Redis, as the processes see them."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import none_or_per_second, per_second, quantile, total
from shared.telemetry import metrics

STORES = Page(
    "stores",
    "Kafka and Redis",
    (
        panel(
            "Consumer lag, by worker",
            "Good: a few records. Rising: more comes than is served. At one worker alone: look at that one.",
            "short",
            (total(metrics.consumer_lag, "instance", "bucket"), "{{instance}} {{bucket}}"),
        ),
        panel(
            "Kafka: rebalances",
            "Good: none but at deployments, one or two a process. Again and again: a member comes and goes.",
            "cps",
            (per_second(metrics.rebalances, "job", "instance"), "{{job}} {{instance}}"),
        ),
        panel(
            "Kafka: what it refused",
            "Good: nothing. commit: a rebalance came between; reply: not acknowledged, sent again.",
            "cps",
            (per_second(metrics.kafka_refused, "what", "job"), "{{what}}, {{job}}"),
        ),
        panel(
            "Dead letters",
            "Good: none. `replyline dlq list` shows them, with the reason of each. waiting: not written yet, in all.",
            "cps",
            (per_second(metrics.dead_letters, "reason"), "{{reason}}"),
            (total(metrics.dead_letters_waiting), "waiting"),
        ),
        panel(
            "Records given up, kept nowhere",
            "Good: none. report, cancel: another release writes them, or nobody of ours; reply: its topic is missing.",
            "cps",
            (per_second(metrics.records_ignored, "what"), "{{what}}"),
        ),
        panel(
            "Replies that nobody waits for",
            "Good: few, after cancels and deadlines. undecodable: versions that do not fit.",
            "cps",
            (none_or_per_second(metrics.replies_dropped, "why"), "{{why}}"),
        ),
        panel(
            "Redis: answers without their history",
            "Good: none. read: answers come without what was said before. lost: turns never written.",
            "reqps",
            (per_second(metrics.history_unavailable, "job", "what"), "{{job}}, {{what}}"),
        ),
        panel(
            "KV: load, recompute, save",
            "Good: load well below recompute, P99 under the timeout (20 ms unless set). No load: Redis is away.",
            "s",
            (quantile(0.5, metrics.kv_time, "what"), "{{what}}, P50"),
            (quantile(0.99, metrics.kv_time, "what"), "{{what}}, P99"),
        ),
        panel(
            "KV: dropped blocks and turns",
            "Good: none. unavailable: Redis; not_finite, and what names a damaged block: see docs/kv.md.",
            "cps",
            (none_or_per_second(metrics.kv_dropped, "reason"), "{{reason}}"),
        ),
    ),
)
