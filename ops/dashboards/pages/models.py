"""Models and releases side by side: is the new one worse?"""

from typing import Final

from ops.dashboards.grafana.panels import Page, panel
from ops.dashboards.grafana.queries import by_model, highest, name_of, quantile_by_model
from shared.telemetry import metrics

_ENDED: Final = 'outcome!="withdrawn"'
_BAD: Final = 'outcome=~"failed|missed"'
_ALL: Final = by_model(metrics.outcomes, where=_ENDED)
_MODEL: Final = "{{model}} {{revision}} {{release}}"

MODELS = Page(
    "models",
    "models side by side",
    (
        panel(
            "Workers by model",
            "Good: one line. Two: a new model, revision or release serves beside the old; this page compares them.",
            "short",
            (
                f"count by (model, revision, engine, release) ({name_of(metrics.model_info)})",
                f"{_MODEL} {{{{engine}}}}",
            ),
            stacked=True,
        ),
        panel(
            "Answers by model",
            "Good: in proportion to the workers. Fewer at equal questions: customers leave it, or it is slow.",
            "reqps",
            (_ALL, _MODEL),
            stacked=True,
        ),
        panel(
            "Failed or missed, by model",
            "Good: under 5 %, and the same for all. One alone higher: CanaryWorse; stop its workers.",
            "percentunit",
            (f"({by_model(metrics.outcomes, where=_BAD)} or 0 * {_ALL}) / {_ALL}", _MODEL),
        ),
        panel(
            "What came of it, by model",
            "Good: kept most. missed: begun or ended too late; failed: the engine; withdrawn: the customer left.",
            "reqps",
            (by_model(metrics.outcomes, "outcome"), f"{_MODEL} {{{{outcome}}}}"),
        ),
        panel(
            "First token by model, P99",
            "Good: alike, and under the promise. From the worker's intake: queue and prefill.",
            "s",
            (quantile_by_model(0.99, metrics.first_token), _MODEL),
            (highest(metrics.promise, where='deadline="first_token"'), "promise"),
        ),
        panel(
            "Whole answer by model, P99",
            "Good: alike, and under the promise. Longer at one: it says more, or decodes slower.",
            "s",
            (quantile_by_model(0.99, metrics.infer_duration), _MODEL),
            (highest(metrics.promise, where='deadline="whole"'), "promise"),
        ),
        panel(
            "Whose words the workers' answers are, by model",
            "Good: alike. More faq or unsure at one: what it says does not pass the guard.",
            "reqps",
            (by_model(metrics.worker_answers, "source"), f"{_MODEL} {{{{source}}}}"),
        ),
    ),
)
