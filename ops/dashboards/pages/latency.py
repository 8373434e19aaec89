"""Where does the time go? Each stage of a request's way."""

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import busy, highest, per_second, quantile
from shared.telemetry import metrics

LATENCY = Page(
    "latency",
    "latency by stage",
    (
        panel(
            "1 · Gateway to Kafka: a request is published",
            "Good: P99 under 10 ms. Slow: the broker, or the gateway's event loop.",
            "s",
            (quantile(0.5, metrics.publish), "P50"),
            (quantile(0.99, metrics.publish), "P99"),
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
            "4 · Worker to Kafka: a round of replies",
            "Good: P99 under 10 ms. Slow: the broker, or the worker's event loop.",
            "s",
            (quantile(0.5, metrics.reply_time), "P50"),
            (quantile(0.99, metrics.reply_time), "P99"),
        ),
        panel(
            "Worker's first word, as the gateway sees it",
            "Good: under the promise. Not cut by it, so this rises where the first text's own does not.",
            "s",
            (quantile(0.5, metrics.first_word), "P50"),
            (quantile(0.99, metrics.first_word), "P99"),
            (highest(metrics.promise, where='deadline="first_token"'), "promise"),
        ),
        panel(
            "First text by bucket, P99",
            "Good: short before long. All alike: they wait for slots rather than for their prefill.",
            "s",
            (quantile(0.99, metrics.ttft, "bucket"), "{{bucket}}"),
        ),
        panel(
            "Whole answer by source, P99",
            "Good: faq and busy in milliseconds when the light path gives them; at the promise when the deadline does.",
            "s",
            (quantile(0.99, metrics.e2e, "source"), "{{source}}"),
        ),
        panel(
            "Predicted first text",
            "Good: about the first text by bucket. Below it: admission takes too much.",
            "s",
            (quantile(0.5, metrics.eta, "bucket"), "predicted, {{bucket}}"),
        ),
        panel(
            "Worker: intake to the answer's end",
            "Good: under the promise of the whole answer. What it is made of stands above.",
            "s",
            (quantile(0.5, metrics.infer_duration), "P50"),
            (quantile(0.99, metrics.infer_duration), "P99"),
            (highest(metrics.promise, where='deadline="whole"'), "promise"),
        ),
        panel(
            "Offset commits",
            "Good: P99 under 50 ms. They delay no answer; slow ones mean a slow broker.",
            "s",
            (quantile(0.99, metrics.commit_time, "job"), "{{job}}"),
        ),
        panel(
            "Steps",
            "Good: steady. Few steps while requests wait: the engine is slow or stands.",
            "ops",
            (per_second(metrics.steps, "kind"), "{{kind}}"),
        ),
    ),
)
