"""No label is unbounded: whoever asks, whatever is asked, the number of series stays the same."""

import random
from typing import Final

import pytest
from prometheus_client import Counter, Gauge, Histogram

from gateway.admission.control import Admission, AdmissionPolicy
from gateway.request.entry import Entry
from gateway.serving.gatekeeper import Gatekeeper
from gateway.telemetry.answer_metrics import count_answer
from shared.telemetry import metrics
from shared.wire.deadline import Deadline
from shared.wire.messages import Response, Timings, Usage
from shared.wire.topics import BUCKETS
from tests.unit.workers.serving.test_worker import Bench

# What a label may be called: each has a handful of values, fixed in the code or by the hardware.
LABELS: Final = {
    "bucket", "check", "code", "deadline", "decision", "gpu", "kind", "language", "level", "mode", "of", "outcome",
    "reason", "source", "state", "status", "what", "why",
}  # fmt: skip
# What a process is does not change while it lives: one series, whatever is asked.
OF_THE_PROCESS: Final = {"replyline_worker_model_info": {"model", "revision", "engine", "release"}}
MOST_CHILDREN: Final = 100
DECLARED: Final = {
    name: value for name, value in vars(metrics).items() if isinstance(value, Counter | Gauge | Histogram)
}


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_metric_has_only_labels_of_the_list(name: str) -> None:
    assert set(DECLARED[name]._labelnames) <= LABELS | OF_THE_PROCESS.get(DECLARED[name]._name, set())
    assert DECLARED[name].describe()[0].documentation


def test_names_carry_their_unit_as_prometheus_wants_it() -> None:
    """Histograms measure seconds, or what their name ends with."""
    for metric in DECLARED.values():
        described = metric.describe()[0]
        if described.type == "histogram":
            assert described.name.endswith(("_seconds", "_rows", "_ratio")), described.name


def _answered(number: int) -> Response:
    pick = random.Random(number)
    return Response(
        id=f"resp_{number}",
        status=pick.choice(["completed", "incomplete", "cancelled", "failed"]),
        reason=pick.choice(["stop", "max_output_tokens", "deadline", "client", "infeasible", "internal"]),
        source=pick.choice(["model", "faq", "busy", "handoff"]),
        output_text="text",
        usage=Usage(),
        timings=Timings(ttft_ms=pick.uniform(0, 4_000), total_ms=pick.uniform(0, 20_000)),
        model=f"model-{number}",
    )


def test_many_tenants_sessions_and_models_make_no_more_series_than_a_few() -> None:
    """300 of each at a gateway, and 300 requests at a worker."""
    keeper = Gatekeeper(Admission(AdmissionPolicy()))
    worker = Bench()
    for number in range(300):
        entry = Entry(
            response_id=f"resp_{number}",
            event_id=f"evt_{number}",
            tenant=f"unboundedtenant{number}",
            session_id=f"unboundedsession{number}",
            connection_id=None,
            input="hi",
            received_unix_ms=0.0,
            deadline=Deadline(first_token_unix_ms=3_000, deadline_unix_ms=15_000),
            bucket=BUCKETS[number % 3],
        )
        keeper.light_path(entry, 1.0)
        response = _answered(number)
        keeper.ended(entry)
        count_answer(entry, response)
        worker.accept(number)
        worker.run()
    page = metrics.exposition()[1].decode()
    assert "unbounded" not in page
    assert "resp_" not in page
    assert "model-2" not in page
    for name, metric in DECLARED.items():
        if metric._labelnames:
            assert len(metric._metrics) <= MOST_CHILDREN, name
