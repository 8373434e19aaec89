"""A load's outcomes in numbers, with the keys that `--json` writes. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from msgspec import Struct

from ops.lab.client.outcome import UNANSWERED, Outcome
from ops.measure.environment import Environment
from ops.measure.quantiles import Quantiles, quantiles
from ops.measure.runner import Cell
from shared.wire.outcome import BY_MODEL, Source

_MOST_SAMPLES: Final = 20_000
LATENCIES: Final = ("ms", "p50", "p95", "p99")


class Goodput(Struct, frozen=True, kw_only=True):
    """Answers by the model that ended within their deadline, including those with replaced sentences. `share` is
    relative to the requests sent. "Unsure" answers do not count."""

    answers: int
    per_s: float
    share: float


class Errors(Struct, frozen=True, kw_only=True):
    """Requests without an answer: refused by the gateway, or `unanswered`."""

    total: int
    by_code: dict[str, int]


class LoadReport(Struct, frozen=True, kw_only=True):
    """The figures of a load. TTFT, TPOT and end-to-end times are of the model's answers; `answered_ms` includes
    fallbacks."""

    requests: int
    answered: int
    duration_s: float
    ttft_ms: Quantiles
    tpot_ms: Quantiles
    e2e_ms: Quantiles
    answered_ms: Quantiles
    send_lag_ms: Quantiles
    output_tokens: int
    output_tok_s: float
    by_source: dict[str, int]
    by_status: dict[str, int]
    goodput: Goodput
    errors: Errors


class Samples(Struct, frozen=True, kw_only=True):
    """Each request's figures in the order of sending, to be compared with another run: TTFT and end-to-end times of the
    model's answers, and `in_time` (0 or 1) of all requests. Thinned out evenly to 20,000 requests."""

    ttft_ms: list[float]
    e2e_ms: list[float]
    in_time: list[int]


class LoadParameters(Struct, frozen=True, kw_only=True):
    """The load's parameters. `max_output_tokens` and `deadline_ms` are None if they differ between requests."""

    command: str
    loop: str
    clients: int | None = None
    rate: float | None
    arrivals: str | None
    connections: int
    warmup: int = 0
    seed: int = 0
    input: str
    max_output_tokens: int | None = None
    deadline_ms: int | None = None


def summarise(outcomes: Sequence[Outcome]) -> LoadReport:
    """Return the figures of the measured requests, without the warm-up. Raises `ValueError` without requests."""
    if not outcomes:
        raise ValueError("no outcome to summarise")
    answered = [outcome for outcome in outcomes if outcome.done_s is not None]
    models = [outcome for outcome in answered if outcome.by_model]
    start_s = min(outcome.scheduled_s for outcome in outcomes)
    duration_s = max((outcome.done_s or start_s for outcome in answered), default=start_s) - start_s
    output_tokens = sum(outcome.output_tokens for outcome in answered if outcome.source in BY_MODEL)
    good = sum(outcome.good for outcome in outcomes)
    return LoadReport(
        requests=len(outcomes),
        answered=len(answered),
        duration_s=round(duration_s, 3),
        ttft_ms=quantiles(_known(outcome.ttft_ms for outcome in models)),
        tpot_ms=quantiles(_known(outcome.tpot_ms for outcome in models)),
        e2e_ms=quantiles(_known(outcome.e2e_ms for outcome in models)),
        answered_ms=quantiles(_known(outcome.e2e_ms for outcome in answered)),
        send_lag_ms=quantiles(
            (outcome.sent_s - outcome.scheduled_s) * 1_000 for outcome in outcomes if outcome.sent_s is not None
        ),
        output_tokens=output_tokens,
        output_tok_s=_per_s(output_tokens, duration_s),
        by_source={source: sum(o.source == source for o in answered) for source in get_args(Source)},
        by_status=dict(Counter(f"{o.status}/{o.reason}" for o in answered)),
        goodput=Goodput(answers=good, per_s=_per_s(good, duration_s), share=round(good / len(outcomes), 4)),
        errors=_errors(outcomes),
    )


def as_json(
    report: LoadReport, run: LoadParameters, environment: Environment, outcomes: Sequence[Outcome]
) -> dict[str, object]:
    """Return the report's keys at the top level, as promised to scripts, along with `run`, `environment` and
    `samples`."""
    keys: dict[str, object] = {name: getattr(report, name) for name in report.__struct_fields__}
    return {**keys, "run": run, "environment": environment, "samples": samples(outcomes)}


def samples(outcomes: Sequence[Outcome]) -> Samples:
    kept = outcomes[:: math.ceil(len(outcomes) / _MOST_SAMPLES) or 1]
    models = [outcome for outcome in kept if outcome.by_model]
    return Samples(
        ttft_ms=[round(ms, 3) for ms in _known(outcome.ttft_ms for outcome in models)],
        e2e_ms=[round(ms, 3) for ms in _known(outcome.e2e_ms for outcome in models)],
        in_time=[int(outcome.good) for outcome in kept],
    )


def _errors(outcomes: Sequence[Outcome]) -> Errors:
    codes = Counter(outcome.error or UNANSWERED for outcome in outcomes if outcome.done_s is None)
    return Errors(total=codes.total(), by_code=dict(codes))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _per_s(count: float, duration_s: float) -> float:
    return round(count / duration_s, 3) if duration_s > 0 else 0.0


def latency_rows(report: LoadReport) -> list[list[Cell]]:
    """Return one row per latency, for the titles `LATENCIES`."""
    rows = {
        "TTFT": report.ttft_ms,
        "TPOT": report.tpot_ms,
        "end to end": report.e2e_ms,
        "any answer": report.answered_ms,
        "(sent late by)": report.send_lag_ms,
    }
    return [[name, of.p50, of.p95, of.p99] for name, of in rows.items()]
