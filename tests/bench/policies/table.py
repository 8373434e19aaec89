"""What is said of a comparison of policies: a line each, what the engine did, the ratios beside their targets. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ops.measure.quantiles import Quantiles, quantiles
from ops.measure.runner import Cell, markdown, show, verdict
from tests.bench.policies.engine import EngineFacts
from tests.bench.policies.outcome import (
    MOST_APART,
    OURS,
    QUIET,
    TARGETS,
    Counts,
    LiveAnswer,
    count_live,
    quotient,
    ratio,
)


class PolicyRow(Struct, frozen=True, kw_only=True):
    """One policy. `stopped_early`: answers that the model ended before they were as long as in the trace;
    `wrong_length`: prompts that the worker counted otherwise than the trace. `others_cpu`: the share of all cores that
    went to processes which are no part of the run."""

    policy: str
    live: Counts
    simulated: Counts
    simulated_by_live: float | None
    live_engine: EngineFacts
    simulated_engine: EngineFacts
    send_lag_ms: Quantiles
    stopped_early: int
    wrong_length: int
    others_cpu: float


def row_of(
    policy: str,
    answers: Sequence[LiveAnswer],
    live_engine: EngineFacts,
    simulated: Counts,
    simulated_engine: EngineFacts,
    *,
    others_cpu: float,
) -> PolicyRow:
    live = count_live(answers)
    return PolicyRow(
        policy=policy,
        live=live,
        simulated=simulated,
        simulated_by_live=quotient(simulated, live),
        live_engine=live_engine,
        simulated_engine=simulated_engine,
        send_lag_ms=quantiles(one.sent_unix_ms - one.due_unix_ms for one in answers if one.sent_unix_ms is not None),
        stopped_early=sum(answer.stopped_early for answer in answers),
        wrong_length=sum(answer.wrong_length for answer in answers),
        others_cpu=round(others_cpu, 4),
    )


def show_rows(trace: str, load: float, rows: Sequence[PolicyRow], *, costs_others_cpu: float) -> str:
    """Two tables, the verdicts, and what is to be known beside them."""
    lines = [_counts(rows), "", _engines(rows), "", *_verdicts(trace, load, rows), *_remarks(rows, costs_others_cpu)]
    return "\n".join(lines)


def _counts(rows: Sequence[PolicyRow]) -> str:
    buckets = list(rows[0].live.in_deadline_by_bucket)
    header = (
        "policy", "", "requests", "in deadline", *buckets, "late", "of these unanswered", "fallback",
        "TTFT p50 ms", "TTFT p99 ms", "simulated / live",
    )  # fmt: skip
    lines: list[list[Cell]] = []
    for row in rows:
        for what, counts in (("live", row.live), ("simulated", row.simulated)):
            lines.append(
                [
                    row.policy,
                    what,
                    counts.requests,
                    counts.model_in_deadline,
                    *counts.in_deadline_by_bucket.values(),
                    counts.model_late,
                    counts.unanswered,
                    counts.fallback,
                    counts.ttft_ms.p50,
                    counts.ttft_ms.p99,
                    row.simulated_by_live if what == "live" else "",
                ]
            )
    return markdown(header, lines)


def _engines(rows: Sequence[PolicyRow]) -> str:
    header = (
        "policy", "", "decode steps", "rows a step", "ms a decode step", "prefill calls", "ms a prefill call",
        "prompt tokens", "output tokens", "busy", "sent late p50 / p99 ms", "stopped early",
    )  # fmt: skip
    lines: list[list[Cell]] = []
    for row in rows:
        for what, facts in (("live", row.live_engine), ("simulated", row.simulated_engine)):
            live = what == "live"
            lag = f"{show(row.send_lag_ms.p50)} / {show(row.send_lag_ms.p99)}"
            lines.append(
                [
                    row.policy,
                    what,
                    facts.decode_steps,
                    facts.mean_rows,
                    facts.decode_ms,
                    facts.prefill_steps,
                    facts.prefill_ms,
                    facts.prompt_tokens,
                    facts.output_tokens,
                    facts.busy,
                    lag if live else "",
                    row.stopped_early if live else "",
                ]
            )
    return markdown(header, lines)


def _verdicts(trace: str, load: float, rows: Sequence[PolicyRow]) -> Iterator[str]:
    ours = next((row for row in rows if row.policy == OURS), None)
    targets = TARGETS.get((trace, load), {})
    for row in rows:
        live = None if ours is None else ratio(ours.live, row.live)
        simulated = None if ours is None else ratio(ours.simulated, row.simulated)
        if row.policy == OURS or live is None:
            continue
        target = targets.get(row.policy)
        said = f" ({verdict(live, target, at_least=True)})" if target else ""
        yield f"{OURS} / {row.policy}, answers in time: {live:.2f} live{said}, {simulated:.2f} simulated"
    for row in rows:
        apart = None if row.simulated_by_live is None else abs(row.simulated_by_live - 1)
        yield f"{row.policy}, simulated count apart from the live one by {show(apart)} ({verdict(apart, MOST_APART)})"


def _remarks(rows: Sequence[PolicyRow], costs_others_cpu: float) -> Iterator[str]:
    if any(row.live.unanswered for row in rows):
        yield "unanswered: a run ends 2 s after the last deadline; what still waited then is counted as late"
    if any(row.wrong_length for row in rows):
        yield f"prompts of another length than in the trace: {sum(row.wrong_length for row in rows)}"
    busiest = max(costs_others_cpu, *(row.others_cpu for row in rows))
    noise = f"other processes took up to {busiest:.1%} of the cores"
    yield noise if busiest <= QUIET else f"NOT A QUIET MACHINE: {noise}; measure again"
