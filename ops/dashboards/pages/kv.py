"""What was computed once: is it found again, and is it worth its load?"""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import none_or_per_second, per_second, quantile, total
from shared.telemetry import metrics

KV = Page(
    "kv",
    "KV cache",
    (
        panel(
            "Prompt tokens, computed and spared",
            "Good: most are spared in conversations of several turns. None: Redis is away, or prompts begin anew.",
            "cps",
            (per_second(metrics.prompt_tokens), "computed"),
            (per_second(metrics.kv_tokens, "level"), "spared: {{level}}"),
            stacked=True,
        ),
        panel(
            "Load or recompute, P50",
            "Good: load well below recompute. Where they meet, the cache gains nothing; no load: Redis is away.",
            "s",
            (quantile(0.5, metrics.kv_load_time), "load"),
            (quantile(0.5, metrics.kv_predicted_recompute), "recompute"),
        ),
        panel(
            "Loading from Redis",
            "Good: P99 under the timeout (20 ms unless set). At it: Redis is slow or far.",
            "s",
            (quantile(0.5, metrics.kv_load_time), "P50"),
            (quantile(0.99, metrics.kv_load_time), "P99"),
        ),
        panel(
            "Writing a turn",
            "Good: any time that keeps up; it delays no answer. Backlog among the drops: it does not keep up.",
            "s",
            (quantile(0.5, metrics.kv_save_time), "P50"),
            (quantile(0.99, metrics.kv_save_time), "P99"),
        ),
        panel(
            "Bytes to Redis",
            "Good: written about the new tokens' bytes. Well over that: turns are written whole again.",
            "Bps",
            (per_second(metrics.kv_written_bytes), "written"),
        ),
        panel(
            "Dropped blocks and turns",
            "Good: none. unavailable: Redis; not_finite, and what names a damaged block: see docs/kv.md.",
            "cps",
            (none_or_per_second(metrics.kv_dropped, "reason"), "{{reason}}"),
        ),
        panel(
            "Host memory that holds blocks",
            "Good: at its limit after a while, never over (kv.host_mib a worker).",
            "bytes",
            (total(metrics.kv_host_bytes, "instance", where='job="worker"'), "{{instance}}"),
        ),
        panel(
            "Answers without their history",
            "Good: none. Redis is away: answers come, without what was said before.",
            "reqps",
            (per_second(metrics.history_unavailable, "job"), "{{job}}"),
        ),
    ),
)
