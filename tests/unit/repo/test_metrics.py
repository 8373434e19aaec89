"""Each metric has a reader and labels from a fixed list; a query for a label's value names a value that is sent."""

import ast
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.choose import choose
from gateway.destination.gate import AdmissionGate
from gateway.destination.lanes import LaneAdmissions
from gateway.telemetry.answer_metrics import count_answer
from ops.operate.diagnose import rules
from shared.telemetry import metrics
from shared.wire.outcome import Response, Timings, Usage
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS
from tests.support.builders.gateway import make_entry
from tests.support.samples.label_values import NONE, ROOT, Module, sent
from tests.support.samples.promql import name_of
from tests.unit.workers.serving.test_worker import Bench

Asked = tuple[str, str, str]
"""Metric, label, value."""

# What a label may be called: each has a handful of values, fixed in the code or by the hardware.
LABELS: Final = {
    "bucket", "check", "code", "deadline", "decision", "gpu", "kind", "lane", "language", "level", "mode", "of",
    "outcome", "pool", "reason", "source", "state", "status", "what", "why",
}  # fmt: skip
# Labels that identify a process: one series, or one for each version in its memory, independent of requests. A gateway
# labels only versions in the registry; there are few at a time.
OF_THE_PROCESS: Final = {
    "replyline_worker_model_info": {"model", "revision", "engine", "release"},
    "replyline_gateway_lane_requests": {"revision"},
    "replyline_gateway_lane_answers": {"revision"},
    "replyline_worker_versions_loaded": {"revision"},
}
DECLARED: Final = {
    name: value for name, value in vars(metrics).items() if isinstance(value, Counter | Gauge | Histogram)
}
# What no code of ours chooses: Prometheus' labels, a histogram's bounds, the name of a device, pool, model or version.
_NOT_CHOSEN: Final = {
    "job", "instance", "namespace", "helm_release", "le", "gpu", "pool", "model", "revision", "engine", "release",
}  # fmt: skip
_SELECTOR: Final = re.compile(r'\b((?:replyline|infer)_\w+)\{((?:[^{}"]|"[^"]*")*)\}')
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_READS: Final = {"now", "gain", "rate", "mean", "quantile", "lowest"}
_READERS: Final = ("docs/**/*.md", "ops/alerts/rules.yml", "ops/dashboards/json/*.json", "ops/**/*.py")
_WHOLE_SYSTEM: Final = ("tests/integration/**/*.py", "tests/support/*.py")


# --- as they are declared


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_metric_has_labels_of_the_list_a_unit_and_a_meaning(name: str) -> None:
    """Histograms measure seconds, or what their name ends with."""
    described = DECLARED[name].describe()[0]
    assert set(DECLARED[name]._labelnames) <= LABELS | OF_THE_PROCESS.get(DECLARED[name]._name, set())
    assert described.documentation
    assert described.type != "histogram" or described.name.endswith(("_seconds", "_rows", "_tokens", "_ratio"))


def test_every_metric_has_a_reader() -> None:
    """A page, an alert, a board, a command, or a test of the whole system."""
    texts = [path.read_text() for pattern in (*_READERS, *_WHOLE_SYSTEM) for path in ROOT.glob(pattern)]
    read = set(re.findall(r"\b(?:replyline|infer)_\w+", "\n".join(texts)))
    read |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in read}
    by_name = {name for text in texts for name in re.findall(r"\bmetrics\.(\w+)", text)}
    assert [name for name, one in DECLARED.items() if name not in by_name and name_of(one) not in read] == []


def test_many_tenants_sessions_and_models_make_no_more_series_than_a_few() -> None:
    """300 of each at a gateway, and 300 requests at a worker."""
    keeper = AdmissionGate(LaneAdmissions(AdmissionPolicy()))
    worker = Bench()
    for number in range(300):
        session = SessionKey(f"unboundedtenant{number}", f"unboundedsession{number}")
        entry = make_entry(number, session=session, bucket=BUCKETS[number % 3])
        choose(entry.request, entry.publication.destination, keeper.view(1.0))
        keeper.admissions.release(entry.response_id)
        count_answer(entry, _answered(number))
        worker.accept(number)
        worker.run()
    page = metrics.exposition()[1].decode()
    assert not [text for text in ("unbounded", "resp_", "model-2") if text in page]
    assert {name for name, one in DECLARED.items() if one._labelnames and len(one._metrics) > 100} == set()


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


# --- as they are asked for


def in_text(text: str) -> set[Asked]:
    """Of selectors as PromQL and the exposition have them; a value of `a|b` is two."""
    return {
        (_metric(name), label, value)
        for name, matchers in _SELECTOR.findall(text)
        for label, how, values in _MATCHER.findall(matchers)
        for value in (values.split("|") if "~" in how else [values])
    }


def in_rules() -> set[Asked]:
    """Return the calls by which a rule of diagnosis reads a window. Raises `AssertionError` if a value is not a
    constant."""
    module = Module(Path(rules.__file__))
    found = set[Asked]()
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=read), args=[of, *_], keywords=keywords) if read in _READS:
                for keyword in keywords:
                    values = NONE if keyword.arg is None else module.values(keyword.value)
                    assert values or keyword.arg in _NOT_CHOSEN, f"{ast.unparse(node)}: annotate what it asks for"
                    found |= {(_metric(module.evaluate(of)), str(keyword.arg), value) for value in values}
    return found


def _metric(sample: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", sample)


def _texts() -> dict[str, str]:
    """Pages, alerts and their tests, dashboards: those that ask for a label."""
    found = {path.name: path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    for path in (ROOT / "ops" / "alerts").glob("*.yml"):
        found[path.name] = "\n".join(_strings(yaml.safe_load(path.read_text())))
    for path in (ROOT / "ops" / "dashboards" / "json").glob("*.json"):
        found[path.name] = "\n".join(_strings(json.loads(path.read_text())))
    return {name: text for name, text in found.items() if in_text(text)}


def _strings(of: Any) -> Iterator[str]:
    if isinstance(of, str):
        yield of
    elif isinstance(of, dict | list):
        for part in of.values() if isinstance(of, dict) else of:
            yield from _strings(part)


def never_sent(asked: set[Asked]) -> set[Asked]:
    return {
        (metric, label, value)
        for metric, label, value in asked
        if label not in _NOT_CHOSEN and value not in sent().get(metric, {}).get(label, frozenset())
    }


def test_nobody_asks_for_a_label_value_that_nobody_sends() -> None:
    texts = _texts()
    assert {"rules.yml", "tests.yml", "overview.json", "workers.json"} <= texts.keys()
    assert {name: wrong for name, text in texts.items() if (wrong := never_sent(in_text(text)))} == {}
    assert never_sent(in_rules()) == set()


def test_all_who_ask_are_heard() -> None:
    """Else a form that is not understood would pass for nothing asked."""
    assert {
        ("replyline_gateway_closes_total", "code", "4008"),
        ("replyline_kv_dropped_total", "reason", "unavailable"),
        ("replyline_worker_step_seconds", "kind", "prefill"),
        ("replyline_worker_cost_ratio", "kind", "decode"),
        ("replyline_ready", "check", "kafka"),
    } <= in_rules()
    assert in_text('sum(rate(infer_total{job=~"a|b",status!~"failed|done"}[1m])) / replyline_x_bucket{le="1"}') == {
        *(("infer_total", "job", value) for value in "ab"),
        *(("infer_total", "status", value) for value in ("failed", "done")),
        ("replyline_x", "le", "1"),
    }


@pytest.mark.parametrize(
    ("metric", "label", "values"),
    [
        ("replyline_worker_outcomes_total", "outcome", {"kept", "missed", "failed", "withdrawn"}),
        ("replyline_gateway_deadlines_total", "deadline", {"first_token", "whole"}),
        ("replyline_gateway_deadlines_total", "outcome", {"met", "missed"}),
        ("replyline_worker_cost_ratio", "kind", {"prefill", "decode"}),
        ("replyline_machine_memory_bytes", "state", {"total", "available"}),
    ],
)
def test_what_is_sent_is_read_from_where_it_is_set(metric: str, label: str, values: set[str]) -> None:
    """By a text, a choice, a loop over texts, an annotation."""
    assert sent()[metric][label] == values
