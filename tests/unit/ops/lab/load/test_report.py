"""A load's report: what counts as good, what as an error, and the keys that scripts rely on."""

import dataclasses
from typing import Any, get_args

import msgspec
import pytest

from ops.lab.client.outcome import Outcome
from ops.lab.load.figures.report import LoadParameters, as_json, summarise
from ops.measure.environment import Environment
from shared.wire.outcome import Source

GOOD = Outcome(
    scheduled_s=10.0,
    deadline_ms=1_000,
    sent_s=10.001,
    created_s=10.01,
    first_s=10.1,
    last_s=10.4,
    done_s=10.5,
    source="model",
    status="completed",
    reason="stop",
    output_tokens=4,
)
ENVIRONMENT = Environment(
    date="2025-01-01T00:00:00+00:00",
    cpu="a cpu",
    cores=2,
    load_1min=0.1,
    system="Linux",
    python="3.12",
    versions={},
    engine="fake",
    broker="embedded",
)
RUN = LoadParameters(
    command="replyline bench",
    loop="closed",
    clients=8,
    rate=None,
    arrivals=None,
    connections=8,
    warmup=0,
    seed=0,
    input="short=1",
    max_output_tokens=4,
    deadline_ms=1_000,
)


def _but(**changes: Any) -> Outcome:
    return dataclasses.replace(GOOD, **changes)


def test_times_run_from_the_schedule() -> None:
    """Not from the sending: a client that was late itself does not hide what a user would have waited."""
    late = _but(sent_s=10.09)
    assert late.ttft_ms == pytest.approx(100)
    assert late.e2e_ms == pytest.approx(500)
    assert late.tpot_ms == pytest.approx(100)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "faq"},
        {"source": "unsure"},
        {"source": "busy"},
        {"done_s": 11.001},
        {"done_s": None},
        {"status": "incomplete", "reason": "deadline"},
        {"status": "cancelled", "reason": "client"},
        {"status": "failed", "reason": "internal"},
        {"source": None, "status": None, "reason": None, "done_s": None, "error": "rate_limited"},
    ],
)
def test_goodput_counts_only_model_answers_in_time(changes: dict[str, Any]) -> None:
    """A fallback, a late answer, and one that was cut, cancelled, failed or refused do not count."""
    report = summarise([GOOD, _but(**changes)])
    assert report.goodput.answers == 1
    assert report.goodput.share == 0.5


def test_an_answer_as_long_as_was_asked_is_good() -> None:
    """`max_output_tokens` is what the client wanted, no failure."""
    assert _but(status="incomplete", reason="max_output_tokens").good


def test_an_answer_with_replaced_sentences_is_the_models() -> None:
    assert _but(source="mixed").good
    assert summarise([_but(source="mixed")]).output_tokens == summarise([GOOD]).output_tokens > 0


def test_fallbacks_refusals_and_silence_are_counted_apart() -> None:
    """Answers by their source; errors by their code; a request without any end is `unanswered`."""
    outcomes = [
        GOOD,
        _but(source="faq"),
        _but(source="busy"),
        _but(done_s=None, source=None, error="too_many_inflight"),
        _but(done_s=None, source=None),
    ]
    report = summarise(outcomes)
    assert report.by_source == dict.fromkeys(get_args(Source), 0) | {"model": 1, "faq": 1, "busy": 1}
    assert report.errors.total == 2
    assert report.errors.by_code == {"too_many_inflight": 1, "unanswered": 1}
    assert (report.requests, report.answered) == (5, 3)


def test_a_fallback_is_not_a_fast_model() -> None:
    """TTFT, TPOT and end to end are of the model's answers; `answered_ms` is of all."""
    report = summarise([GOOD, _but(source="faq", first_s=10.001, last_s=10.001, done_s=10.001)])
    assert report.ttft_ms.p50 == pytest.approx(100)
    assert report.e2e_ms.p50 == pytest.approx(500)
    assert report.answered_ms.p50 == pytest.approx(1)


def test_the_json_keys_are_stable() -> None:
    """Scripts read them; taking one away or renaming it breaks them."""
    document = msgspec.json.decode(msgspec.json.encode(as_json(summarise([GOOD]), RUN, ENVIRONMENT, [GOOD])))
    assert set(document) == {
        "requests", "answered", "duration_s", "ttft_ms", "tpot_ms", "e2e_ms", "answered_ms", "send_lag_ms",
        "output_tokens", "output_tok_s", "by_source", "by_status", "goodput", "errors", "run", "environment",
        "samples",
    }  # fmt: skip
    assert set(document["samples"]) == {"ttft_ms", "e2e_ms", "in_time"}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "answered_ms", "send_lag_ms"):
        assert set(document[name]) == {"p50", "p95", "p99"}
    assert set(document["goodput"]) == {"answers", "per_s", "share"}
    assert set(document["errors"]) == {"total", "by_code"}
    assert set(document["by_source"]) == set(get_args(Source))
    assert {"date", "cpu", "cores", "versions", "engine", "broker"} <= set(document["environment"])
