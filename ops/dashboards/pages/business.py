"""What the customers get."""

from ops.dashboards.panels import Page, panel
from ops.dashboards.queries import per_second, quantile, share
from shared import metrics

BUSINESS = Page(
    "business",
    "business",
    (
        panel(
            "Answers by source",
            "Good: model over 95 %. The rest had an entry of the FAQ, or were asked to try again.",
            "percentunit",
            *((share(metrics.answers, f'source="{source}"'), source) for source in ("model", "faq", "busy")),
        ),
        panel(
            "How answers end",
            "Good: completed. cancelled: the customer went on; incomplete: cut by a limit or the deadline.",
            "reqps",
            (per_second(metrics.answers, "status", "reason"), "{{status}} {{reason}}"),
            stacked=True,
        ),
        panel(
            "Completed, by source",
            "Good: over 95 % of the model's. Less: answers are cut; see the deadlines.",
            "percentunit",
            (share(metrics.answers, 'status="completed"', "source"), "{{source}}"),
        ),
        panel(
            "First text in time, by bucket",
            "Good: over 95 %, alike in all buckets. A bucket alone: its questions are served last.",
            "percentunit",
            (share(metrics.deadlines, 'outcome="met"', "bucket", of='deadline="first_token"'), "{{bucket}}"),
        ),
        panel(
            "Whole answer in time, by bucket",
            "Good: over 95 %. Less with first texts in time: answers are too long for their deadline.",
            "percentunit",
            (share(metrics.deadlines, 'outcome="met"', "bucket", of='deadline="whole"'), "{{bucket}}"),
        ),
        panel(
            "How long a customer waits for the first text",
            "Good: the half of them under a third of the promise.",
            "s",
            (quantile(0.5, metrics.ttft), "P50"),
            (quantile(0.9, metrics.ttft), "P90"),
            (quantile(0.99, metrics.ttft), "P99"),
        ),
        panel(
            "The workers' answers",
            "Good: completed nearly all, failed none.",
            "reqps",
            (per_second(metrics.infer, "status"), "{{status}}"),
            stacked=True,
        ),
        panel(
            "Words given: output tokens",
            "Good: follows the questions. Cost goes with it.",
            "cps",
            (per_second(metrics.output_tokens), "output tokens"),
        ),
    ),
)
