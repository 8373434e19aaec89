"""Whoever asks for a label's value asks for one that is sent: rules of diagnosis, alerts, dashboards and runbooks.

What waits for any other is silent for ever.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.operate.diagnose import rules
from tests.support.samples.label_values import NONE, ROOT, Module, sent

Asked = tuple[str, str, str]
"""Metric, label, value."""

# What no code of ours chooses: Prometheus' own labels, a histogram's bounds, what names a device, a model or a version.
_NOT_CHOSEN = {"job", "instance", "le", "gpu", "model", "revision", "engine", "release"}
_SELECTOR = re.compile(r'\b((?:replyline|infer)_\w+)\{((?:[^{}"]|"[^"]*")*)\}')
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_READS = {"now", "gain", "rate", "mean", "quantile", "lowest"}


def in_text(text: str) -> set[Asked]:
    """Of selectors as PromQL and the exposition have them; a value of `a|b` is two."""
    return {
        (_metric(name), label, value)
        for name, matchers in _SELECTOR.findall(text)
        for label, how, values in _MATCHER.findall(matchers)
        for value in (values.split("|") if "~" in how else [values])
    }


def in_rules() -> set[Asked]:
    """Of the calls by which a rule of diagnosis reads a window. Raises `AssertionError` where a value is not told."""
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


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield path.name, path.read_text()
    for path in sorted((ROOT / "ops" / "alerts").glob("*.yml")):
        yield path.name, "\n".join(_strings(yaml.safe_load(path.read_text())))
    for path in sorted((ROOT / "ops" / "dashboards" / "json").glob("*.json")):
        yield path.name, "\n".join(_strings(json.loads(path.read_text())))


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


TEXTS = {name: text for name, text in _texts() if in_text(text)}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_asks_for_no_label_value_that_nobody_sends(name: str) -> None:
    assert never_sent(in_text(TEXTS[name])) == set()


def test_rules_of_diagnosis_ask_for_no_label_value_that_nobody_sends() -> None:
    assert never_sent(in_rules()) == set()


def test_all_who_ask_are_heard() -> None:
    """Else a form that is not understood would pass for nothing asked."""
    assert {"rules.yml", "tests.yml", "overview.json", "workers.json"} <= TEXTS.keys()
    assert {
        ("replyline_gateway_closes_total", "code", "4008"),
        ("replyline_kv_dropped_total", "reason", "unavailable"),
        ("replyline_worker_step_seconds", "kind", "prefill"),
        ("replyline_worker_cost_ratio", "kind", "decode"),
        ("replyline_ready", "check", "kafka"),
    } <= in_rules()
    assert in_text('sum(rate(infer_total{job=~"a|b",status!~"failed|done"}[1m])) / replyline_x_bucket{le="1"}') == {
        ("infer_total", "job", "a"),
        ("infer_total", "job", "b"),
        ("infer_total", "status", "failed"),
        ("infer_total", "status", "done"),
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
