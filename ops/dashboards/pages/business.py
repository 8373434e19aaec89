"""What the customers get."""

from typing import Final, get_args

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import highest, per_second, quantile, share
from shared.telemetry import metrics
from shared.wire.messages import Source

SOURCES: Final = get_args(Source)
RESOLVED: Final = 'outcome="resolved"'
CREATED: Final = 'outcome="created"'
BEGUN: Final = per_second(metrics.conversations)


def _rated(where: str = "", *by: str) -> str:
    """Ratings that count: those that were given, less those taken back."""
    given, taken_back = (
        per_second(metrics.feedback, *by, where=",".join(filter(None, (where, f'kind="{kind}"'))))
        for kind in ("given", "taken_back")
    )
    return f"({given} - ({taken_back} or 0 * {given}))"


BUSINESS = Page(
    "business",
    "business",
    (
        panel(
            "Answers by source",
            "Good: model most, busy and unsure few. mixed: sentences replaced by the FAQ's; faq: its entry; courtesy: "
            "small talk; unsure: nothing known; busy: asked to try again; handoff: a person was asked.",
            "percentunit",
            *((share(metrics.answers, f'source="{source}"'), source) for source in SOURCES),
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
            "First-contact resolution, as customers say",
            "Good: over 80 %. Of the answers that were rated, by their last rating: resolved, or a thumb up without a "
            "word on that. Few rate; those who do not count neither way.",
            "percentunit",
            (f"{_rated(RESOLVED)} / {_rated()}", "all"),
            (f"{_rated(RESOLVED, 'source')} / {_rated('', 'source')}", "{{source}}"),
        ),
        panel(
            "Answers rated",
            "Good: some. kind taken_back: the customer thought better of it; it is counted again as what it is now.",
            "reqps",
            (per_second(metrics.feedback, "outcome", "kind"), "{{outcome}} {{kind}}"),
        ),
        panel(
            "Why an answer did not help",
            "Good: none stands out. wrong or incomplete: look at the FAQ's entries; slow: at the deadlines.",
            "reqps",
            (per_second(metrics.feedback_reasons, "reason"), "{{reason}}"),
            stacked=True,
        ),
        panel(
            "Handed over to a person, of all conversations",
            "Good: under 5 %. A hand-off that was opened, for each conversation that got its first answer meanwhile.",
            "percentunit",
            (f"{per_second(metrics.handoffs, where=CREATED)} / {BEGUN}", "all"),
            (f"{per_second(metrics.handoffs, 'reason', where=CREATED)} / on () group_left () {BEGUN}", "{{reason}}"),
        ),
        panel(
            "Hand-offs, by reason",
            "Good: created follows the conversations, failed and limited none. fallbacks: nothing helps, twice in a "
            "row; open: asked for again meanwhile.",
            "reqps",
            (per_second(metrics.handoffs, "reason", "outcome"), "{{reason}} {{outcome}}"),
            stacked=True,
        ),
        panel(
            "FAQ entries searched",
            "Good: what the shop has written, alike at all processes. One that differs has not read the last change.",
            "short",
            (highest(metrics.faq_entries, "job", "instance", "language"), "{{job}} {{instance}} {{language}}"),
        ),
        panel(
            "FAQ read anew",
            "Good: reloaded at a change, failed never: then the log says what is wrong, and the FAQ as it was answers.",
            "reqps",
            (per_second(metrics.faq_reloads, "job", "outcome"), "{{job}} {{outcome}}"),
        ),
        panel(
            "Conversations begun",
            "Good: follows the shop's day.",
            "reqps",
            (BEGUN, "conversations"),
        ),
        panel(
            "The workers' answers",
            "Good: completed nearly all, failed none.",
            "reqps",
            (per_second(metrics.infer, "status"), "{{status}}"),
            stacked=True,
        ),
        panel(
            "The workers' answers, by source",
            "Good: model most. unsure rising: customers ask what the FAQ does not have; mixed: the model makes figures "
            "up.",
            "reqps",
            (per_second(metrics.worker_answers, "source"), "{{source}}"),
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
