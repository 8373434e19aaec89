"""What is said of a run under overload: the phases, what they cost, and the targets. Pure."""

from collections.abc import Iterator
from typing import Final

from ops.measure.quantiles import Quantiles
from ops.measure.runner import Cell, markdown, show, verdict
from tests.bench.overload.outcome import AFTER, MOST, Ending, Overload, PhaseRow

AT_ONCE_TARGET_MS: Final = 50.0
LATE_TARGET_MS: Final = 250.0
RECOVERY_TARGET_S: Final = 10.0
KEPT_TARGET: Final = 0.95
BEGUN_LATE_TARGET: Final = 0.01
QUIET_CORES: Final = 0.15
OTHERS: Final = "others"
_NOT_RECOVERED: Final = f"≤ {show(RECOVERY_TARGET_S)} missed"


def show_overload(overload: Overload) -> str:
    """Two tables and the verdicts."""
    promise = f"first token {overload.first_token_ms:,} ms, deadline {overload.deadline_ms:,} ms"
    lines = [
        f"capacity: {show(overload.capacity_per_s)} model answers/s, closed loop; {promise}",
        "",
        _answers(overload.phases),
        "",
        _latencies(overload.phases),
        "",
        *_verdicts(overload),
        _noise(overload.phases),
    ]
    return "\n".join(lines)


def _answers(phases: list[PhaseRow]) -> str:
    header = (
        "phase", "requests /s", "requests", "model in time", "in time /s", "model late", "at once",
        "given up by worker", "at the soft deadline", "refused", "missing", "said twice", "by the gateway's reasons",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for row in phases:
        count = row.endings
        rows.append(
            [
                row.phase,
                row.rate,
                row.requests,
                count[Ending.IN_TIME.value],
                row.in_time_per_s,
                count[Ending.LATE.value],
                count[Ending.AT_ONCE.value],
                count[Ending.GIVEN_UP.value],
                count[Ending.SOFT_DEADLINE.value],
                count[Ending.REFUSED.value],
                count[Ending.MISSING.value],
                row.repeated,
                ", ".join(f"{reason} {number}" for reason, number in row.by_reason.items()),
            ]
        )
    return markdown(header, rows)


def _latencies(phases: list[PhaseRow]) -> str:
    header = (
        "phase", "at once p50 / p99 ms", "given up p50 / p99 ms", "after the soft deadline p50 / p99 ms",
        "TTFT p50 / p99 ms", "after the deadline p99.9 / max ms", "sent late p50 / p99 ms",
        "cores: gateway, worker, clients, others",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for row in phases:
        pairs = [_pair(of) for of in (row.at_once_ms, row.given_up_ms, row.after_soft_ms, row.ttft_ms)]
        late = f"{show(row.late_ms.p999)} / {show(row.late_ms.max)}"
        rows.append([row.phase, *pairs, late, _pair(row.send_lag_ms), ", ".join(map(show, row.cpu.values()))])
    return markdown(header, rows)


def _pair(of: Quantiles) -> str:
    return f"{show(of.p50)} / {show(of.p99)}"


def _verdicts(overload: Overload) -> Iterator[str]:
    most = next(row for row in overload.phases if row.phase == MOST)
    kept, late = overload.kept_share, overload.late_ms
    at_once = most.endings[Ending.AT_ONCE.value] + most.endings[Ending.REFUSED.value]
    not_by_model = most.requests - most.endings[Ending.IN_TIME.value] - most.endings[Ending.LATE.value]
    yield (
        f"at {MOST}, answered by the fallback at once or refused ({at_once:,} of {not_by_model:,} not by the model), "
        f"p99 ms: {show(most.at_once_ms.p99)} ({verdict(most.at_once_ms.p99, AT_ONCE_TARGET_MS)})"
    )
    yield f"terminal event after the deadline, the latest, ms: {show(late.max)} ({verdict(late.max, LATE_TARGET_MS)})"
    yield f"requests without an end: {overload.missing} ({verdict(overload.missing, 0)})"
    yield f"requests with more than one end: {overload.repeated} ({verdict(overload.repeated, 0)})"
    share = overload.begun_late / overload.begun if overload.begun else 0.0
    yield (
        f"begun by the worker after the first token was due: {overload.begun_late} of {overload.begun} "
        f"({verdict(share, BEGUN_LATE_TARGET)})"
    )
    yield (
        f"model answers in time a second, the worst by the best at less load: {show(kept)} "
        f"({verdict(kept, KEPT_TARGET, at_least=True)})"
    )
    recovery = overload.recovery_s
    met = verdict(recovery, RECOVERY_TARGET_S)
    said = f"{show(recovery)} ({met})" if recovery is not None else f"not in {AFTER!r} ({_NOT_RECOVERED})"
    yield f"s from the end of {MOST} until as before: {said}"


def _noise(phases: list[PhaseRow]) -> str:
    most = max(row.cpu[OTHERS] for row in phases)
    noise = f"other processes, Redis and a broker that is a process among them, took up to {show(most)} cores"
    return noise if most <= QUIET_CORES else f"NOT A QUIET MACHINE: {noise}; measure again"
