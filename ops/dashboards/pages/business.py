"""What the customers get."""

from typing import Final, get_args

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import per_second
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
            "How answers end",
            "Good: completed. cancelled: the customer went on; incomplete: cut by a limit or the deadline.",
            "reqps",
            (per_second(metrics.answers, "status", "reason"), "{{status}} {{reason}}"),
            stacked=True,
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
            "FAQ read anew",
            "Good: reloaded at a change, failed never: then the log says what is wrong, and the FAQ as it was answers.",
            "reqps",
            (per_second(metrics.faq_reloads, "job", "outcome"), "{{job}} {{outcome}}"),
        ),
    ),
)
