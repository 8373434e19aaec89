"""The figures of a drill: for each fault, what customers experienced before, during and after it. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ops.lab.client.outcome import Outcome
from ops.lab.drill.schedule import Phase
from ops.measure.quantiles import percentile
from shared.wire.outcome import BY_MODEL

_STRETCH_S: Final = 5.0
_RECENT: Final = 20
_SLACK_MS: Final = 250.0  # tolerance for the way to the client and for the client's clock
_PHASES: Final[tuple[Phase, ...]] = ("before", "during", "after")


class PhaseRow(Struct, frozen=True, kw_only=True):
    """The questions in one phase of one fault.

    Attributes:
        by_workers: complete answers of the workers, in time
        instead: answers of the FAQ instead, in time
        late: answers after the deadline
        nothing: no answer, or an error
    """

    phase: Phase
    asked: int
    by_workers: int
    instead: int
    late: int
    nothing: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None


class FaultRow(Struct, frozen=True, kw_only=True):
    """The result of one fault.

    Attributes:
        recovered_s: time from the fault's end until the workers answered well again; None if they did not
        holds: every question had an answer in time, and the fleet recovered
        stopped: why the drill ended here
    """

    fault: str
    phases: tuple[PhaseRow, ...]
    recovered_s: float | None
    holds: bool
    stopped: str | None = None


def is_in_time(outcome: Outcome) -> bool:
    """Return whether the question had an answer by the deadline, from any source."""
    e2e_ms = outcome.e2e_ms
    return outcome.error is None and e2e_ms is not None and e2e_ms <= outcome.deadline_ms + _SLACK_MS


def is_settled(outcome: Outcome, now_s: float) -> bool:
    """Return whether a question has its answer or error, or is late."""
    ended = outcome.done_s is not None or outcome.error is not None
    return ended or now_s > outcome.scheduled_s + (outcome.deadline_ms + _SLACK_MS) / 1_000


def is_well(outcome: Outcome, first_token_ms: float) -> bool:
    """Return whether the workers completed the answer in time, with the model's text or another that they chose."""
    if outcome.source in BY_MODEL:
        return outcome.by_model and is_in_time(outcome)
    stood_in = outcome.source == "busy" or (
        outcome.source in {"faq", "quote"} and not _is_chosen(outcome, first_token_ms)
    )
    return not stood_in and is_in_time(outcome)


def _is_chosen(outcome: Outcome, first_token_ms: float) -> bool:
    """Return whether a worker chose the FAQ entry: it was asked, and answered before the gateway's timer expired."""
    ttft_ms = outcome.ttft_ms
    return outcome.eta_ms is not None and ttft_ms is not None and ttft_ms < first_token_ms


def share_well(outcomes: Sequence[Outcome], first_token_ms: float) -> float:
    """Return the share of questions that the workers answered in time; 0 without questions."""
    well = sum(is_well(one, first_token_ms) for one in outcomes)
    return well / len(outcomes) if outcomes else 0.0


def too_bad(outcomes: Sequence[Outcome], least: float, now_s: float) -> str | None:
    """Return why a drill must end: too few of the latest settled questions had an answer in time."""
    recent = [one for one in outcomes if is_settled(one, now_s)][-_RECENT:]
    had = sum(is_in_time(one) for one in recent)
    if len(recent) < _RECENT or had / len(recent) >= least:
        return None
    return f"{had} of the last {len(recent)} questions had an answer in time; {least:.0%} are required"


def recovered_s(outcomes: Sequence[Outcome], since_s: float, well: float, first_token_ms: float) -> float | None:
    """Return the time from `since_s` to the first period of five seconds in which the fleet answers well."""
    after = [one for one in outcomes if one.scheduled_s >= since_s]
    for first in after:
        stretch = [one for one in after if 0 <= one.scheduled_s - first.scheduled_s < _STRETCH_S]
        whole = after[-1].scheduled_s - first.scheduled_s >= _STRETCH_S / 2
        if is_well(first, first_token_ms) and whole and share_well(stretch, first_token_ms) >= well:
            return first.scheduled_s - since_s
    return None


def fault_row(
    fault: str,
    outcomes: Sequence[Outcome],
    span_s: tuple[float, float],
    *,
    well: float,
    first_token_ms: float,
    stopped: str | None = None,
) -> FaultRow:
    """Return the row of a fault, from the questions asked around it.

    Args:
        fault: the fault in words
        outcomes: outcomes of the questions
        span_s: begin and end of the fault
        well: minimum share of good answers of a recovered fleet
        first_token_ms: the promised time to the first text; an FAQ entry that arrives later replaces a worker's answer
        stopped: why the drill ended here
    """
    begun_s, ended_s = span_s
    parts: dict[Phase, list[Outcome]] = {phase: [] for phase in _PHASES}
    for one in outcomes:
        phase: Phase = "before" if one.scheduled_s < begun_s else "during" if one.scheduled_s < ended_s else "after"
        parts[phase].append(one)
    back_s = recovered_s(outcomes, ended_s, well, first_token_ms)
    return FaultRow(
        fault=fault,
        phases=tuple(_row(phase, part, first_token_ms) for phase, part in parts.items()),
        recovered_s=None if back_s is None else round(back_s, 2),
        holds=back_s is not None and stopped is None and all(map(is_in_time, outcomes)),
        stopped=stopped,
    )


def _row(phase: Phase, outcomes: Sequence[Outcome], first_token_ms: float) -> PhaseRow:
    good = sum(is_well(one, first_token_ms) for one in outcomes)
    in_time = sum(map(is_in_time, outcomes))
    late = sum(one.done_s is not None and not is_in_time(one) for one in outcomes)
    ttfts = sorted(one.ttft_ms for one in outcomes if one.ttft_ms is not None)
    return PhaseRow(
        phase=phase,
        asked=len(outcomes),
        by_workers=good,
        instead=in_time - good,
        late=late,
        nothing=len(outcomes) - in_time - late,
        ttft_p50_ms=round(percentile(ttfts, 0.5), 1) if ttfts else None,
        ttft_p99_ms=round(percentile(ttfts, 0.99), 1) if ttfts else None,
    )
