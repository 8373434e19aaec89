"""Where does the time go? Each stage of a request's way."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import busy, highest, quantile
from shared.telemetry import metrics

LATENCY = Page(
    "latency",
    "latency by stage",
    (
        panel(
            "1 · Kafka: produce to acknowledgement, P99",
            "Good: under 10 ms, commits under 50 ms (they delay no answer). Slow: the broker, or our event loop.",
            "s",
            (quantile(0.99, metrics.kafka_time, "what", "job"), "{{what}}, {{job}}"),
        ),
        panel(
            "2 · Worker: intake to the first engine step",
            "Good: under a tenth of the promise. Slow: more comes than there are slots.",
            "s",
            (quantile(0.5, metrics.queue_time), "P50"),
            (quantile(0.99, metrics.queue_time), "P99"),
        ),
        panel(
            "3 · Parts of a step, P99",
            "Good: decode flat, prefill below the stall limit, schedule and complete under a millisecond.",
            "s",
            (quantile(0.99, metrics.step_time, "kind"), "{{kind}}"),
        ),
        panel(
            "3 · Parts of a step, share of the time",
            "Good: prefill and decode share it. What is left to 1 per worker is idle; schedule over 2 % is too much.",
            "percentunit",
            (busy(metrics.step_time, "kind"), "{{kind}}"),
            stacked=True,
        ),
        panel(
            "5 · Worker's first word, as the gateway sees it",
            "Good: under the promise. Not cut by it, so this rises where the first text's own does not.",
            "s",
            (quantile(0.5, metrics.first_word), "P50"),
            (quantile(0.99, metrics.first_word), "P99"),
            (highest(metrics.promise, where='deadline="first_token"'), "promise"),
        ),
        panel(
            "4 · Worker: intake to the answer's end",
            "Good: under the promise of the whole answer. What it is made of stands above.",
            "s",
            (quantile(0.5, metrics.infer_duration), "P50"),
            (quantile(0.99, metrics.infer_duration), "P99"),
            (highest(metrics.promise, where='deadline="whole"'), "promise"),
        ),
    ),
)
